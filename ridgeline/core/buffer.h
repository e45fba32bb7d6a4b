#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "ridgeline/core/tensor.h"

namespace ridgeline {

// Every allocation starts on its own cache line, and a 64-byte load at its last element stays
// inside.
constexpr size_t kAlignment = 64;

constexpr size_t align_up(size_t bytes, size_t alignment = kAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Owned, zeroed, aligned host memory.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes) : bytes_(bytes) {
    const size_t padded = align_up(bytes) + kAlignment;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, padded)));
    if (!data_) throw_error(ErrorKind::device, "out of memory: {} bytes of host memory", padded);
    std::memset(data_.get(), 0, padded);
  }

  std::byte* data() const { return data_.get(); }
  size_t size() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_ = 0;
};

// A host tensor that owns its memory. The view stays valid while this object lives.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, const Shape& shape)
      : buffer_(size_t(checked_mul(shape.numel(), int64_t(size_of(dtype)), "tensor"))),
        view_{buffer_.data(), dtype, shape, Device{}} {}

  const Tensor& view() const { return view_; }
  template <typename T>
  std::span<T> span() const {
    return view_.span<T>();
  }

 private:
  Buffer buffer_;
  Tensor view_;
};

}  // namespace ridgeline
