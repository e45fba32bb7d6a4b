#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ridgeline/cuda/plain/accumulate.cuh"

namespace ridgeline::cuda {

#ifdef __CUDACC__
#define RIDGELINE_MIXED_HD __host__ __device__
#else
#define RIDGELINE_MIXED_HD
#endif

// An optional operand beside values of type T. It has type T or, with `is_accumulator`, the
// accumulator type of T: the biases and gradients of networks whose weights have fp32 master
// copies.
template <typename T>
struct MixedIn {
  const void* data = nullptr;
  bool is_accumulator = false;

  RIDGELINE_MIXED_HD explicit operator bool() const { return data != nullptr; }
  RIDGELINE_MIXED_HD Accumulated<T> operator[](int64_t i) const {
    return is_accumulator ? static_cast<const Accumulated<T>*>(data)[i]
                          : Accumulated<T>(static_cast<const T*>(data)[i]);
  }
};

template <typename T>
struct MixedOut {
  void* data = nullptr;
  bool is_accumulator = false;

  RIDGELINE_MIXED_HD explicit operator bool() const { return data != nullptr; }
  RIDGELINE_MIXED_HD void put(int64_t i, Accumulated<T> value) const {
    if (is_accumulator) {
      static_cast<Accumulated<T>*>(data)[i] = value;
    } else {
      static_cast<T*>(data)[i] = T(value);
    }
  }
};

}  // namespace ridgeline::cuda
