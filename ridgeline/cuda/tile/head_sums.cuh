#pragma once

#include "ridgeline/cuda/plain/sgd.cuh"
#include "ridgeline/cuda/tile/head.h"

namespace ridgeline::cuda::tile {

// Adds the parts of a head and applies the sums, 32 sums per block at a time, by every block of the
// grid. Each warp takes every so-many-th part, and the warps' sums are added in order: the result
// depends on the number of warps, but not on their timing.
template <typename T>
__device__ void apply_head_sums(const HeadSums<T>& head) {
  constexpr int kMostWarps = 8;
  __shared__ T warp_sums[kMostWarps][32];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int warps = int(blockDim.x) / 32;
  const int weights = head.classes * head.hidden;
  const int count = weights + head.classes + head.hidden;
  const SgdRates<T> rates(head.sgd);
  for (int first = int(blockIdx.x) * 32; first < count; first += int(gridDim.x) * 32) {
    const int i = first + lane;
    T sum = T(0);
    if (i < count) {
      const T* part = head.partial + i;
#pragma unroll 16
      for (int at = warp; at < head.parts; at += warps) sum += part[int64_t(at) * count];
    }
    warp_sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && i < count) {
      for (int w = 1; w < warps; ++w) sum += warp_sums[w][lane];
      if (i < weights) {
        sgd_element(rates, head.w, head.w_momentum, i, sum);
      } else if (i < weights + head.classes) {
        if (head.b != nullptr) sgd_element(rates, head.b, head.b_momentum, i - weights, sum);
      } else if (head.below != nullptr) {
        sgd_element(rates, head.below, head.below_momentum, i - weights - head.classes, sum);
      }
    }
    __syncthreads();  // warp 0 has read the sums
  }
  if (blockIdx.x == gridDim.x - 1 && warp == 0) {
    double loss = 0;
    int correct = 0;
    for (int part = lane; part < head.parts; part += 32) {
      loss += head.part_loss[part];
      correct += head.part_correct[part];
    }
    for (int apart = 16; apart > 0; apart /= 2) {
      loss += __shfl_down_sync(~0u, loss, apart);
      correct += __shfl_down_sync(~0u, correct, apart);
    }
    if (lane == 0) {
      const int32_t tick = *head.sgd.tick;
      head.loss[tick] = loss * head.scale;
      if (head.correct != nullptr) head.correct[tick] = correct;
    }
  }
}

}  // namespace ridgeline::cuda::tile
