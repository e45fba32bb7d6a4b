#pragma once

// Memory on the GPU, and timing, for rnn_bench.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ridgeline/cuda/plain/index.cuh"

namespace ridgeline::cuda {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <typename T>
__global__ void fill_kernel(T* to, int64_t count, uint32_t seed, float size) {
  for (int64_t i = first_index(); i < count; i += index_stride()) {
    uint64_t x = (uint64_t(seed) << 40) + uint64_t(i) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 32;
    to[i] = T(size * (float(uint32_t(x)) * 0x1p-31f - 1.0f));
  }
}

template <typename T>
class Array {
 public:
  explicit Array(int64_t count) : count_(count) {
    check(cudaMalloc(&data_, size_t(count) * sizeof(T) + 256), "cudaMalloc");
    check(cudaMemset(data_, 0x3f, size_t(count) * sizeof(T)), "cudaMemset");
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T* get() const { return data_; }
  int64_t size() const { return count_; }
  void fill(uint32_t seed, float size) { fill_kernel<T><<<512, 256>>>(data_, count_, seed, size); }
  void zero() { check(cudaMemset(data_, 0, size_t(count_) * sizeof(T)), "cudaMemset"); }
  std::vector<T> host() const {
    std::vector<T> all(static_cast<size_t>(count_));
    check(cudaMemcpy(all.data(), data_, all.size() * sizeof(T), cudaMemcpyDefault), "cudaMemcpy");
    return all;
  }

 private:
  T* data_ = nullptr;
  int64_t count_;
};

// a - b| / |b|; NaN if any element of a is NaN.
template <typename T>
double distance(const Array<T>& a, const Array<T>& b) {
  const auto x = a.host(), y = b.host();
  double off = 0, size = 1e-300;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = double(float(x[i])) - double(float(y[i]));
    off += d * d;
    size += double(float(y[i])) * double(float(y[i]));
  }
  return std::sqrt(off / size);
}

// Microseconds per call: the least of several replays of a graph.
template <typename F>
double time_us(cudaStream_t stream, F f) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  check(f(), "launch");
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float best = 1e30f;
  for (int i = 0; i < 12; ++i) {
    cudaEventRecord(begin, stream);
    cudaGraphLaunch(exec, stream);
    cudaEventRecord(end, stream);
    check(cudaStreamSynchronize(stream), "run");
    float ms;
    cudaEventElapsedTime(&ms, begin, end);
    best = ms < best ? ms : best;
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return 1e3 * best;
}

}  // namespace ridgeline::cuda
