#pragma once

#include "ridgeline/cuda/conv/implicit.h"

namespace ridgeline::cuda {

// `count` partial sums of the same values, `stride` apart. Within each, runs of `run` values are
// `pitch` apart; a run of 0 means that all are contiguous.
template <typename A>
struct PartialSums {
  const A* first;
  int count;
  int64_t stride;
  int run = 0, pitch = 0;

  __device__ int place(int at) const { return run == 0 ? at : at / run * pitch + at % run; }
};

// Computes dw[o, tap] from parts [tap, o] and db[o] from parts [o]. A warp adds every eighth part
// in order, then the eight results are added. A block takes 32 values; db has blocks of its own.
template <typename T>
__global__ void __launch_bounds__(256)
    grad_w_sum_kernel(PartialSums<Accumulated<T>> weights, PartialSums<Accumulated<T>> bias,
                      int taps, int k, MixedOut<T> dw, MixedOut<T> db) {
  using A = Accumulated<T>;
  __shared__ A sums[8][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int blocks = (taps * k + 31) / 32;
  const bool of_bias = int(blockIdx.x) >= blocks;
  const A* parts = of_bias ? bias.first : weights.first;
  const int count = of_bias ? bias.count : weights.count;
  const int64_t stride = of_bias ? bias.stride : weights.stride;
  const int at = (int(blockIdx.x) - (of_bias ? blocks : 0)) * 32 + lane;
  const bool inside = at < (of_bias ? k : taps * k);
  A sum = A(0);
  if (inside) {
    parts += of_bias ? bias.place(at) : at;
#pragma unroll 8
    for (int part = warp; part < count; part += 8) sum += parts[part * stride];
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || !inside) return;
  for (int w = 1; w < 8; ++w) sum += sums[w][lane];
  if (of_bias) {
    db.put(at, sum);
  } else {
    dw.put(int64_t(at % k) * taps + at / k, sum);
  }
}

template <typename T>
cudaError_t launch_grad_w_sum(const PartialSums<Accumulated<T>>& weights,
                              const PartialSums<Accumulated<T>>& bias, int taps, int k,
                              const MixedOut<T>& dw, const MixedOut<T>& db, cudaStream_t stream) {
  const int blocks = (taps * k + 31) / 32 + (db ? (k + 31) / 32 : 0);
  grad_w_sum_kernel<T><<<unsigned(blocks), 256, 0, stream>>>(weights, bias, taps, k, dw, db);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
