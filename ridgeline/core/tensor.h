#pragma once

#include <span>

#include "ridgeline/core/device.h"
#include "ridgeline/core/dtype.h"
#include "ridgeline/core/shape.h"

namespace ridgeline {

// A dense row-major view. It owns nothing and is passed by value.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::fp32;
  Shape shape;
  Device device;

  int64_t numel() const { return shape.numel(); }
  size_t bytes() const { return size_t(numel()) * size_of(dtype); }

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  template <typename T>
  std::span<T> span() const {  // host memory only
    return {as<T>(), size_t(numel())};
  }
};

}  // namespace ridgeline
