#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "ridgeline/core/buffer.h"
#include "ridgeline/core/error.h"

namespace ridgeline::cpu::simd {

// Zeroed memory, in large pages where there is much of it: weights that are streamed through at
// every call should not wait for a translation of each 4 KiB.
class WeightMemory {
 public:
  explicit WeightMemory(int64_t floats) {
    constexpr size_t kPage = size_t{2} << 20;
    const size_t bytes = size_t(floats) * sizeof(float);
    const bool large = bytes >= kPage / 4;
    const size_t whole = align_up(bytes + kAlignment, large ? kPage : kAlignment);
    data_.reset(static_cast<float*>(std::aligned_alloc(large ? kPage : kAlignment, whole)));
    if (!data_) throw_error(ErrorKind::device, "out of memory: {} bytes of host memory", whole);
    if (large) madvise(data_.get(), whole, MADV_HUGEPAGE);
    std::memset(data_.get(), 0, whole);
  }
  float* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
};

}  // namespace ridgeline::cpu::simd
