#include "ridgeline/core/text.h"

#include <gtest/gtest.h>

namespace ridgeline {
namespace {

TEST(Text, CountsInTheRightNumber) {
  EXPECT_EQ(counted(0, "kernel"), "0 kernels");
  EXPECT_EQ(counted(1, "kernel"), "1 kernel");
  EXPECT_EQ(counted(2, "kernel"), "2 kernels");
  EXPECT_EQ(counted(1, "class", "classes"), "1 class");
  EXPECT_EQ(counted(10, "class", "classes"), "10 classes");
}

TEST(Text, TrimsItsEndsAlone) {
  EXPECT_EQ(trimmed(""), "");
  EXPECT_EQ(trimmed(" \t "), "");
  EXPECT_EQ(trimmed("a"), "a");
  EXPECT_EQ(trimmed("\t a b  "), "a b");
}

}  // namespace
}  // namespace ridgeline
