#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// Eight halves of a pixel's channels, 16 bytes, which a thread loads at once.
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

// A thread's share of rows of channels: the eight channels from `channel` on, in the rows first,
// first + stride, ... The threads of a block divide kRowThreads / lanes rows by `lanes` runs of
// channels; those that are left over have no rows.
struct RowShare {
  int lanes, at_once;  // runs of channels a block has, rows it takes at once
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

// x, or 0 below it; a NaN stays one.
__device__ inline float relu(float x) { return x < 0 ? 0.0f : x; }
// Whether a number takes the place of the largest so far: a NaN is larger than all others.
__device__ inline bool exceeds(float x, float most) { return x > most || (x != x && most == most); }

}  // namespace ridgeline::cuda
