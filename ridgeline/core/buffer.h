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

// Owned, zeroed, aligned host memory. A large buffer takes no memory until it is touched.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);  // throws Error(device) if there is no memory

  std::byte* data() const { return data_.get(); }
  size_t size() const { return bytes_; }

 private:
  struct Free {
    void* pages;   // of a large buffer, mapped from the system; otherwise null
    size_t bytes;  // of the pages
    void operator()(std::byte* memory) const;
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
