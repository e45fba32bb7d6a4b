#include <cuda_bf16.h>

#include <algorithm>

#include "ridgeline/cuda/byte_products.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;

struct alignas(16) Eight {
  __nv_bfloat16 values[8];
};

// A thread moves 8 inputs of a row at a time: first the rows of the batch, then those of w.
__global__ void __launch_bounds__(kThreads) byte_prepare_kernel(BytePrepareArgs args) {
  const GatherArgs& gather = args.gather;
  const int chunks = args.in / 8, terms = args.terms;
  const int32_t tick = *gather.tick;
  const int64_t first = *gather.first + int64_t(tick) * gather.n;
  const int64_t begin = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t step = int64_t(gridDim.x) * kThreads, rows = gather.n + args.out;
  auto* x = static_cast<Eight*>(args.x);
  auto* w = static_cast<Eight*>(args.w_terms);
  for (int64_t i = begin; i < rows * chunks; i += step) {
    const int64_t row = i / chunks, chunk = i % chunks;
    if (row < gather.n) {
      const int64_t source = gather.order[first + row];
      const uint2 bytes =
          *reinterpret_cast<const uint2*>(gather.set + source * args.in + 8 * chunk);
      Eight out;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const uint32_t word = e < 4 ? bytes.x : bytes.y;
        const int byte = int(word >> (8 * (e & 3)) & 0xff);
        out.values[e] = __float2bfloat16_rn(float(byte - args.center));
      }
      for (int term = 0; term < terms; ++term) x[(row * terms + term) * chunks + chunk] = out;
      if (chunk == 0) gather.label[row] = gather.labels[source];
    } else {
      const int64_t out_row = row - gather.n;
      const float4* from = reinterpret_cast<const float4*>(args.w + out_row * args.in) + 2 * chunk;
      const float4 a = from[0], b = from[1];
      float left[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
      for (int term = 0; term < terms; ++term) {
        Eight out;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          out.values[e] = __float2bfloat16_rn(left[e]);
          left[e] -= float(out.values[e]);
        }
        w[(out_row * terms + term) * chunks + chunk] = out;
      }
    }
  }
  if (begin == 0) {
    *args.scalars = {float(args.sgd.lr[tick]), float(args.sgd.momentum), float(args.sgd.decay),
                     float(gather.scale)};
  }
}

}  // namespace

cudaError_t launch_byte_prepare(const BytePrepareArgs& args, cudaStream_t stream) {
  const int64_t pieces = (args.gather.n + args.out) * (args.in / 8);
  const auto blocks = unsigned(std::min<int64_t>((pieces + kThreads - 1) / kThreads, 132 * 8));
  byte_prepare_kernel<<<blocks, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
