#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// Eight half-precision channels of a pixel (16 bytes), which a thread loads at once.
namespace ridgeline::cuda {

constexpr int kRun = 8;
constexpr int kRowThreads = 256;

template <typename T>
struct alignas(16) Run8 {
  T values[kRun];

  __device__ float operator[](int e) const { return float(values[e]); }
  __device__ void put(int e, float value) { values[e] = T(value); }
};

template <typename T>
__device__ Run8<T> load_run(const T* from) {
  return *reinterpret_cast<const Run8<T>*>(from);
}
template <typename T>
__device__ void store_run(T* to, const Run8<T>& run) {
  *reinterpret_cast<Run8<T>*>(to) = run;
}

// A thread's share of rows of channels: the eight channels from `channel` on, in rows first, first
// + stride, and so on. The threads of a block cover kRowThreads / lanes rows by `lanes` runs of
// channels; leftover threads take no rows.
struct RowShare {
  int lanes, at_once;  // runs of channels per block, and rows per block at once
  int64_t first, stride;
  int channel;
  bool idle;

  __device__ explicit RowShare(int channels) {
    const int runs = channels / kRun, begin = int(blockIdx.y) * kRowThreads;
    lanes = min(runs - begin, kRowThreads);
    at_once = kRowThreads / min(runs, kRowThreads);
    const int row = int(threadIdx.x) / lanes;
    idle = row >= at_once;
    first = int64_t(blockIdx.x) * at_once + row;
    stride = int64_t(gridDim.x) * at_once;
    channel = (begin + int(threadIdx.x) % lanes) * kRun;
  }
};

// max(x, 0); NaN stays NaN.
__device__ inline float relu(float x) { return x < 0 ? 0.0f : x; }
// Whether x replaces the largest value so far. NaN counts as larger than everything else.
__device__ inline bool exceeds(float x, float most) { return x > most || (x != x && most == most); }

}  // namespace ridgeline::cuda
