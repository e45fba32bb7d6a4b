#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/gpu/check_cuda.h"

namespace {

template <typename T>
struct OnDevice {
  explicit OnDevice(size_t n) : n(n) {
    CHECK_CUDA(cudaMalloc(&p, std::max<size_t>(n, 1) * sizeof(T)));
  }
  explicit OnDevice(const std::vector<T>& v) : OnDevice(v.size()) {
    CHECK_CUDA(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(p); }
  std::vector<T> get() const {
    std::vector<T> v(n);
    CHECK_CUDA(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
  }
  void poison() { CHECK_CUDA(cudaMemset(p, 0xff, n * sizeof(T))); }
  T* p = nullptr;
  size_t n = 0;
};

}  // namespace
