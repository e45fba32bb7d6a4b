#include "ridgeline/core/failure.h"

#include <gtest/gtest.h>

#include <new>

#include "ridgeline/core/error.h"

namespace ridgeline {
namespace {

TEST(Failure, OfAnErrorIsWhatItSays) {
  const Failure failure = failure_of(Error(ErrorKind::data, "images.idx: too short"));
  EXPECT_EQ(failure.exit_code, 3);
  EXPECT_EQ(failure.message, "images.idx: too short");
}

TEST(Failure, OfALackOfMemorySaysWhatHelps) {
  const Failure failure = failure_of(std::bad_alloc());
  EXPECT_EQ(failure.exit_code, exit_code(ErrorKind::device));
  EXPECT_TRUE(failure.message.starts_with("out of host memory: use ")) << failure.message;
}

TEST(Failure, OfAnythingElseIsUnexpected) {
  const Failure failure = failure_of(std::runtime_error("stoi"));
  EXPECT_EQ(failure.exit_code, 1);
  EXPECT_EQ(failure.message, "unexpected: stoi");
}

}  // namespace
}  // namespace ridgeline
