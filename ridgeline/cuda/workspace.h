#pragma once

#include <cstddef>
#include <cstdint>

#include "ridgeline/core/dtype_enum.h"

namespace ridgeline::cuda {

// Consecutive slices of a kernel's workspace. Without a workspace, take() only counts bytes and
// returns null, which is how covers() learns the size; with one, it returns memory.
class WorkspaceSlices {
 public:
  WorkspaceSlices() = default;
  explicit WorkspaceSlices(void* workspace)
      : base_(aligned(reinterpret_cast<uintptr_t>(workspace))) {}

  void* take(size_t bytes) {
    const uintptr_t at = base_ + take_offset(bytes);
    return base_ != 0 ? reinterpret_cast<void*>(at) : nullptr;
  }
  // Takes a slice for those who add its offset to aligned(workspace) themselves.
  size_t take_offset(size_t bytes) {
    const size_t at = used_;
    used_ += aligned(bytes);
    return at;
  }
  void* take(int64_t count, DType dtype) { return take(size_t(count) * size_of(dtype)); }
  template <typename T>
  T* take_of(size_t count) {
    return static_cast<T*>(take(count * sizeof(T)));
  }
  size_t total() const { return used_ + kAlignment; }  // including the alignment of the start

  static constexpr size_t kAlignment = 256;  // an arena's slices start at multiples of 64
  static constexpr size_t aligned(size_t at) {
    return (at + kAlignment - 1) / kAlignment * kAlignment;
  }

 private:
  uintptr_t base_ = 0;
  size_t used_ = 0;
};

}  // namespace ridgeline::cuda
