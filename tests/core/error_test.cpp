#include "ridgeline/core/error.h"

#include <gtest/gtest.h>

namespace ridgeline {
namespace {

TEST(Error, ExitCodesAreThoseOfTheManual) {
  EXPECT_EQ(exit_code(ErrorKind::usage), 2);
  EXPECT_EQ(exit_code(ErrorKind::data), 3);
  EXPECT_EQ(exit_code(ErrorKind::model), 3);
  EXPECT_EQ(exit_code(ErrorKind::numeric), 4);
  EXPECT_EQ(exit_code(ErrorKind::io), 5);
  EXPECT_EQ(exit_code(ErrorKind::device), 6);
  EXPECT_EQ(exit_code(ErrorKind::comm), 7);
}

TEST(Error, NamesAreThoseOfTheKinds) {
  EXPECT_STREQ(name(ErrorKind::usage), "usage");
  EXPECT_STREQ(name(ErrorKind::numeric), "numeric");
  EXPECT_STREQ(name(ErrorKind::comm), "comm");
}

TEST(Error, CarriesItsKindAndTheFormattedMessage) {
  try {
    throw_error(ErrorKind::data, "{}: bad magic {:#x}", "images.idx", 0x1234);
    FAIL() << "throw_error returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_STREQ(error.what(), "images.idx: bad magic 0x1234");
  }
}

}  // namespace
}  // namespace ridgeline
