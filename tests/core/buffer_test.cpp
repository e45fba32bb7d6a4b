#include "ridgeline/core/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace ridgeline {
namespace {

TEST(Buffer, IsZeroAndAlignedWhateverItsSize) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{1} << 20, size_t{16} << 20,
                             (size_t{16} << 20) + 1, (size_t{33} << 20) - 7}) {
    // The second takes memory that the first has written to and given back.
    for (int time = 0; time < 2; ++time) {
      const Buffer buffer(bytes);
      EXPECT_EQ(buffer.size(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kAlignment, 0u);
      // A load of 64 bytes at the last element stays inside.
      const std::span<std::byte> all(buffer.data(), bytes + kAlignment);
      EXPECT_TRUE(std::ranges::all_of(all, [](std::byte b) { return b == std::byte{0}; })) << bytes;
      std::ranges::fill(all, std::byte{0xff});
    }
  }
}

TEST(Buffer, MovesItsMemory) {
  for (const size_t bytes : {size_t{10}, size_t{20} << 20}) {
    Buffer from(bytes);
    std::byte* const memory = from.data();
    Buffer to(1);
    to = std::move(from);
    EXPECT_EQ(to.data(), memory);
    EXPECT_EQ(to.size(), bytes);
    to.data()[bytes - 1] = std::byte{1};
  }
}

}  // namespace
}  // namespace ridgeline
