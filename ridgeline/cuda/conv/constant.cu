#include <cstdint>

#include "ridgeline/cuda/conv/constant.h"

namespace ridgeline::cuda {
namespace {

__constant__ float filters[kMostConstantWeights];

constexpr int kChannels = 8, kThreads = 128;

// blockIdx.y: the group of channels. One group of the convolution only.
__global__ void conv2d_constant_kernel(ConvGeometry g, const float* x, const float* b, float* y) {
  const int64_t pixel = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (pixel >= int64_t(g.n) * g.p * g.q) return;
  const int column = int(pixel % g.q), row = int(pixel / g.q % g.p);
  const int64_t i = pixel / (int64_t(g.q) * g.p);
  const int first = blockIdx.y * kChannels, taps = g.c * g.down.kernel * g.right.kernel;
  const int top = row * g.down.stride - g.down.pad, left = column * g.right.stride - g.right.pad;
  float sum[kChannels] = {};
  int tap = first * taps;
  for (int c = 0; c < g.c; ++c) {
    const float* plane = x + (i * g.c + c) * g.h * g.w;
    for (int u = 0; u < g.down.kernel; ++u) {
      const int r = top + u * g.down.dilation;
      for (int v = 0; v < g.right.kernel; ++v, ++tap) {
        const int s = left + v * g.right.dilation;
        const bool inside = r >= 0 && r < g.h && s >= 0 && s < g.w;
        const float value = inside ? plane[int64_t(r) * g.w + s] : 0.0f;
#pragma unroll
        for (int o = 0; o < kChannels; ++o) {
          // Beyond the last channel: a filter that is there, whose sum is not stored.
          sum[o] = fmaf(value, filters[first + o < g.k ? tap + o * taps : tap], sum[o]);
        }
      }
    }
  }
#pragma unroll
  for (int o = 0; o < kChannels; ++o) {
    if (first + o >= g.k) break;
    const float bias = b != nullptr ? b[first + o] : 0.0f;
    y[((i * g.k + first + o) * g.p + row) * g.q + column] = sum[o] + bias;
  }
}

}  // namespace

cudaError_t launch_conv2d_constant(const ConvGeometry& g, const float* x, const float* w,
                                   const float* b, float* y, cudaStream_t stream) {
  const size_t weights = size_t(g.k) * g.c * g.down.kernel * g.right.kernel;
  const cudaError_t error = cudaMemcpyToSymbolAsync(filters, w, weights * sizeof(float), 0,
                                                    cudaMemcpyDeviceToDevice, stream);
  if (error != cudaSuccess) return error;
  const int64_t pixels = int64_t(g.n) * g.p * g.q;
  const dim3 grid(unsigned((pixels + kThreads - 1) / kThreads),
                  unsigned((g.k + kChannels - 1) / kChannels));
  conv2d_constant_kernel<<<grid, kThreads, 0, stream>>>(g, x, b, y);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
