#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ridgeline/cuda/plain/accumulate.cuh"

namespace ridgeline::cuda {

#ifdef __CUDACC__
#define RIDGELINE_LOOSE_HD __host__ __device__
#else
#define RIDGELINE_LOOSE_HD
#endif

// An optional operand beside values of type T that is of type T too, or, `wide`, of the type that
// sums of T are kept in: biases and gradients of networks whose weights have fp32 masters.
template <typename T>
struct LooseIn {
  const void* data = nullptr;
  bool wide = false;

  RIDGELINE_LOOSE_HD explicit operator bool() const { return data != nullptr; }
  RIDGELINE_LOOSE_HD Accumulated<T> operator[](int64_t i) const {
    return wide ? static_cast<const Accumulated<T>*>(data)[i]
                : Accumulated<T>(static_cast<const T*>(data)[i]);
  }
};

template <typename T>
struct LooseOut {
  void* data = nullptr;
  bool wide = false;

  RIDGELINE_LOOSE_HD explicit operator bool() const { return data != nullptr; }
  RIDGELINE_LOOSE_HD void put(int64_t i, Accumulated<T> value) const {
    if (wide) {
      static_cast<Accumulated<T>*>(data)[i] = value;
    } else {
      static_cast<T*>(data)[i] = T(value);
    }
  }
};

}  // namespace ridgeline::cuda
