#pragma once

// Sizes that the layouts of this folder share.

#include <cstddef>
#include <cstdint>

namespace ridgeline::cuda::mlp {

constexpr int kWarps = 16;       // per block, so that a thread may have 128 registers
constexpr int kTileBytes = 512;  // 16 units x 16 samples
constexpr size_t kCounterBytes = 256;

constexpr int divide_up(int a, int b) { return (a + b - 1) / b; }

// Hands out aligned ranges of one memory, as offsets.
struct Arena {
  size_t used = 0;
  int64_t take(size_t bytes, size_t align = 128) {
    used = (used + align - 1) / align * align;
    const size_t at = used;
    used += bytes;
    return int64_t(at);
  }
};

}  // namespace ridgeline::cuda::mlp
