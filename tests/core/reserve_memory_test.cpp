#include "ridgeline/core/reserve_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace ridgeline {
namespace {

constexpr size_t kPage = 4096;

// Maps pages beyond the end of a file, as in a full /dev/shm: touching one kills the process.
class ShortFile : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = ::memfd_create("short", 0);
    ASSERT_GE(file_, 0);
    ASSERT_EQ(::ftruncate(file_, 2 * kPage), 0);
    void* mapped = ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    begin_ = static_cast<std::byte*>(mapped);
  }
  void TearDown() override {
    ::munmap(begin_, 4 * kPage);
    ::close(file_);
  }
  int file_ = -1;
  std::byte* begin_ = nullptr;
};

TEST_F(ShortFile, IsReservedUpToItsEnd) {
  std::memset(begin_, 1, 2 * kPage);
  EXPECT_TRUE(reserve_memory(begin_, 2 * kPage));
  EXPECT_TRUE(
      std::all_of(begin_, begin_ + 2 * kPage, [](std::byte b) { return b == std::byte{}; }));
  EXPECT_TRUE(reserve_memory(begin_ + 100, 2 * kPage - 100));
  EXPECT_TRUE(reserve_memory(begin_, 0));
}

TEST_F(ShortFile, IsRefusedBeyondItsEndWithoutASignal) {
  EXPECT_FALSE(reserve_memory(begin_, 2 * kPage + 1));
  EXPECT_FALSE(reserve_memory(begin_, 4 * kPage));
  EXPECT_FALSE(reserve_memory(begin_ + 2 * kPage, 1));
}

}  // namespace
}  // namespace ridgeline
