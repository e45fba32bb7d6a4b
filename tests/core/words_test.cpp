#include "ridgeline/core/words.h"

#include <gtest/gtest.h>

#include <vector>

namespace ridgeline {
namespace {

TEST(Words, NearestIsTheFewestEditsAwayOrNone) {
  const std::vector<std::string_view> names{"train", "test", "batch"};
  EXPECT_EQ(nearest("trian", names), "train");
  EXPECT_EQ(nearest("batches", names), "batch");
  EXPECT_EQ(nearest("momentum", names), "");
  EXPECT_EQ(nearest("", names), "");
}

TEST(Words, WhatIsNoCharacterOfALineIsSpeltOut) {
  EXPECT_EQ(printable("a b\xc3\xa4"), "a b\xc3\xa4");
  EXPECT_EQ(printable(std::string_view("a\0b\n\x1b[2J\x7f", 9)), "a\\x00b\\x0a\\x1b[2J\\x7f");
  EXPECT_EQ(one_line("a\r\nb\x1b"), "a  b\\x1b");
  EXPECT_EQ(quote("it"), "'it'");
  EXPECT_EQ(quote(std::string(81, 'x')), "'" + std::string(80, 'x') + "...'");
}

}  // namespace
}  // namespace ridgeline
