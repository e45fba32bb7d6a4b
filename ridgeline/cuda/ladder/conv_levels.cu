#include <cstdint>

#include "ridgeline/cuda/ladder/conv_levels.h"

namespace ridgeline::cuda {
namespace {

constexpr int kMostWeights = 64 * 1024 / 4;
__constant__ float mask[kMostWeights];

constexpr int kThreads = 256;
constexpr int kUnrolled = 7;  // the filters of the founding work are 7 x 7

// kKernel: the side of the filter, or 0 if it is known only at run time.
template <bool kInRegister, int kKernel>
__global__ void conv2d_level_kernel(ConvGeometry g, const float* x, const float* b, float* y) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int outputs = g.p * g.q;
  if (at >= int64_t{g.n} * g.k * outputs) return;
  const int q = int(at % g.q), p = int(at / g.q % g.p);
  const int k = int(at / outputs % g.k);
  const int64_t image = at / outputs / g.k;
  const int rows = kKernel > 0 ? kKernel : g.down.kernel;
  const int columns = kKernel > 0 ? kKernel : g.right.kernel;
  float sum = b != nullptr ? b[k] : 0.0f;
  if (!kInRegister) y[at] = sum;
  for (int c = 0; c < g.c; ++c) {
    const float* plane = x + (image * g.c + c) * g.h * g.w;
    const float* filter = mask + (k * g.c + c) * rows * columns;
#pragma unroll(kKernel > 0 ? kKernel : 1)
    for (int u = 0; u < rows; ++u) {
      const int h = p * g.down.stride - g.down.pad + u * g.down.dilation;
#pragma unroll(kKernel > 0 ? kKernel : 1)
      for (int v = 0; v < columns; ++v) {
        const int w = q * g.right.stride - g.right.pad + v * g.right.dilation;
        if (h < 0 || h >= g.h || w < 0 || w >= g.w) continue;
        const float term = filter[u * columns + v] * plane[h * g.w + w];
        if (kInRegister) {
          sum += term;
        } else {
          y[at] += term;
        }
      }
    }
  }
  if (kInRegister) y[at] = sum;
}

}  // namespace

const char* refuse_conv_level(const ConvGeometry& g, ConvLevel level) {
  if (g.group_in != g.c) return "takes one group only";
  if (int64_t{g.k} * g.c * g.down.kernel * g.right.kernel > kMostWeights) {
    return "the filters do not fit in constant memory";
  }
  const bool known = g.down.kernel == kUnrolled && g.right.kernel == kUnrolled;
  if (level == ConvLevel::unrolled && !known) return "takes filters of 7 x 7 only";
  return nullptr;
}

cudaError_t launch_conv_level(const ConvGeometry& g, ConvLevel level, const float* x,
                              const float* w, const float* b, float* y, cudaStream_t stream) {
  const size_t bytes =
      sizeof(float) * size_t(g.k) * size_t(g.c) * size_t(g.down.kernel) * size_t(g.right.kernel);
  if (const cudaError_t error =
          cudaMemcpyToSymbolAsync(mask, w, bytes, 0, cudaMemcpyDeviceToDevice, stream);
      error != cudaSuccess) {
    return error;
  }
  const int64_t outputs = int64_t{g.n} * g.k * g.p * g.q;
  const auto blocks = unsigned((outputs + kThreads - 1) / kThreads);
  switch (level) {
    case ConvLevel::constant_mask:
      conv2d_level_kernel<false, 0><<<blocks, kThreads, 0, stream>>>(g, x, b, y);
      break;
    case ConvLevel::register_sums:
      conv2d_level_kernel<true, 0><<<blocks, kThreads, 0, stream>>>(g, x, b, y);
      break;
    case ConvLevel::unrolled:
      conv2d_level_kernel<true, kUnrolled><<<blocks, kThreads, 0, stream>>>(g, x, b, y);
      break;
  }
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
