#include <cuda_fp16.h>

#include <algorithm>

#include "ridgeline/cuda/device/mbarrier.cuh"
#include "ridgeline/cuda/gemm/fp16_split_u8_products.h"
#include "ridgeline/cuda/gemm/launch.h"
#include "ridgeline/cuda/tile/power.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

struct alignas(16) Eight {
  __half values[8];
};

// A thread moves 8 inputs of a sample at a time.
__device__ void gather_samples(const Fp16SplitPrepareArgs& args, int64_t first, int64_t begin,
                               int64_t step) {
  const GatherArgs& gather = args.gather;
  const int chunks = args.in / 8;
  auto* x = static_cast<Eight*>(args.x);
  for (int64_t i = begin; i < gather.n * chunks; i += step) {
    const int64_t sample = i / chunks, chunk = i % chunks;
    const int64_t source = gather.order[first + sample];
    const uint2 bytes = *reinterpret_cast<const uint2*>(gather.set + source * args.in + 8 * chunk);
    Eight out;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const uint32_t word = e < 4 ? bytes.x : bytes.y;
      const int byte = int(word >> (8 * (e & 3)) & 0xff);
      out.values[e] = __int2half_rn(byte - args.center);
    }
    for (int term = 0; term < args.terms; ++term)
      x[(sample * args.terms + term) * chunks + chunk] = out;
    if (chunk == 0) gather.label[sample] = gather.labels[source];
  }
}

// A warp splits a row of w into fp16 terms.
__device__ void split_row(const Fp16SplitPrepareArgs& args, int row) {
  const int lane = int(threadIdx.x) % 32, chunks = args.in / 8;
  const float4* from = reinterpret_cast<const float4*>(args.w + int64_t(row) * args.in);
  float most = 0.0f;
#pragma unroll 4
  for (int i = lane; i < 2 * chunks; i += 32) {
    const float4 v = from[i];
    most = largest(largest(most, v.x), largest(largest(v.y, v.z), v.w));
  }
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    most = largest(most, __shfl_xor_sync(~0u, most, apart));
  }
  const HalfPower power = half_power(most);
  if (lane == 0) args.w_power[row] = power.up;
  auto* w = static_cast<Eight*>(args.w_terms) + int64_t(row) * args.terms * chunks;
  for (int i = lane; i < chunks; i += 32) {
    const float4 a = from[2 * i], b = from[2 * i + 1];
    float left[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int e = 0; e < 8; ++e) left[e] *= power.down;
    for (int term = 0; term < args.terms; ++term) {
      Eight out;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        out.values[e] = __float2half_rn(left[e]);
        left[e] -= __half2float(out.values[e]);
      }
      w[term * chunks + i] = out;
    }
  }
}

// The first blocks split w, the others gather.
__global__ void __launch_bounds__(kThreads)
    fp16_split_prepare_kernel(Fp16SplitPrepareArgs args, int split_blocks) {
#if __CUDA_ARCH__ >= 900
  wait_for_previous_kernel();
  allow_next_kernel();
#endif
  const int block = int(blockIdx.x);
  if (block < split_blocks) {
    const int row = block * kWarps + int(threadIdx.x) / 32;
    if (row < args.out) split_row(args, row);
    return;
  }
  const int32_t tick = *args.gather.tick;
  const int64_t first = *args.gather.first + int64_t(tick) * args.gather.n;
  const int64_t begin = int64_t(block - split_blocks) * kThreads + threadIdx.x;
  gather_samples(args, first, begin, int64_t(gridDim.x - split_blocks) * kThreads);
  if (begin == 0) {
    *args.scalars = {float(args.sgd.lr[tick]), float(args.sgd.momentum), float(args.sgd.decay),
                     float(args.gather.scale)};
  }
}

}  // namespace

cudaError_t launch_fp16_split_prepare(const Fp16SplitPrepareArgs& args, cudaStream_t stream) {
  const int split_blocks = ceil_div(args.out, kWarps);
  const int64_t chunks = args.gather.n * (args.in / 8);
  const int blocks = int(std::min<int64_t>((chunks + kThreads - 1) / kThreads, 132 * 8));
  LaunchConfig launch(split_blocks + blocks, kThreads, 0, 1, /*overlap_previous=*/true);
  const cudaLaunchConfig_t config = launch.on(stream);
  return cudaLaunchKernelEx(&config, fp16_split_prepare_kernel, args, split_blocks);
}

}  // namespace ridgeline::cuda
