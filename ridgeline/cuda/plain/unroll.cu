#include "ridgeline/cuda/plain/accumulate.cuh"
#include "ridgeline/cuda/plain/conv.h"
#include "ridgeline/cuda/plain/index.cuh"
#include "ridgeline/cuda/plain/transpose.h"

namespace ridgeline::cuda {
namespace {

template <typename T>
__global__ void unroll_kernel(ConvGeometry g, const T* x, T* columns, int64_t count) {
  const int filter = g.c * g.down.kernel * g.right.kernel;
  for (int64_t j = first_index(); j < count; j += index_stride()) {
    const int f = int(j % filter);
    const int64_t row = j / filter;
    const int v = f % g.right.kernel, u = f / g.right.kernel % g.down.kernel;
    const int c = f / (g.right.kernel * g.down.kernel);
    const int r = int(row / g.q % g.p) * g.down.stride - g.down.pad + u * g.down.dilation;
    const int s = int(row % g.q) * g.right.stride - g.right.pad + v * g.right.dilation;
    const int64_t i = row / (int64_t(g.q) * g.p);
    const bool inside = r >= 0 && r < g.h && s >= 0 && s < g.w;
    columns[j] = inside ? x[((i * g.c + c) * g.h + r) * g.w + s] : T(0.0f);
  }
}

template <typename T>
__global__ void roll_up_kernel(ConvGeometry g, const T* columns, T* dx, int64_t count) {
  using A = Accumulated<T>;
  const int filter = g.c * g.down.kernel * g.right.kernel;
  for (int64_t j = first_index(); j < count; j += index_stride()) {
    const int s = int(j % g.w), r = int(j / g.w % g.h);
    const int c = int(j / (int64_t(g.w) * g.h) % g.c);
    const int64_t i = j / (int64_t(g.w) * g.h * g.c);
    A sum = A(0);
    for (int u = 0; u < g.down.kernel; ++u) {
      const int above = r + g.down.pad - u * g.down.dilation;
      if (above < 0 || above % g.down.stride != 0 || above / g.down.stride >= g.p) continue;
      for (int v = 0; v < g.right.kernel; ++v) {
        const int before = s + g.right.pad - v * g.right.dilation;
        if (before < 0 || before % g.right.stride != 0 || before / g.right.stride >= g.q) continue;
        const int64_t row = (i * g.p + above / g.down.stride) * g.q + before / g.right.stride;
        sum += A(columns[row * filter + (c * g.down.kernel + u) * g.right.kernel + v]);
      }
    }
    dx[j] = T(sum);
  }
}

}  // namespace

template <typename T>
cudaError_t launch_unroll(const ConvGeometry& g, const T* x, T* columns, int first, int count,
                          cudaStream_t stream) {
  const int64_t size = int64_t(count) * g.p * g.q * g.c * g.down.kernel * g.right.kernel;
  unroll_kernel<T><<<blocks_for(size), kThreads, 0, stream>>>(
      g, x + int64_t(first) * g.c * g.h * g.w, columns, size);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_roll_up(const ConvGeometry& g, const T* columns, T* dx, int first, int count,
                           cudaStream_t stream) {
  const int64_t image = int64_t(g.c) * g.h * g.w;
  roll_up_kernel<T><<<blocks_for(count * image), kThreads, 0, stream>>>(
      g, columns, dx + first * image, count * image);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_channels_last(const ConvGeometry& g, const T* images, T* rows, int first,
                                 int count, cudaStream_t stream) {
  const int pixels = g.p * g.q;
  return launch_transpose(images + int64_t(first) * g.k * pixels, rows, g.k, pixels, count, stream);
}

template <typename T>
cudaError_t launch_channels_first(const ConvGeometry& g, const T* rows, T* images, int first,
                                  int count, cudaStream_t stream) {
  const int pixels = g.p * g.q;
  return launch_transpose(rows, images + int64_t(first) * g.k * pixels, pixels, g.k, count, stream);
}

#define RIDGELINE_LAUNCH_UNROLL(T)                                                                \
  template cudaError_t launch_unroll(const ConvGeometry&, const T*, T*, int, int, cudaStream_t);  \
  template cudaError_t launch_roll_up(const ConvGeometry&, const T*, T*, int, int, cudaStream_t); \
  template cudaError_t launch_channels_last(const ConvGeometry&, const T*, T*, int, int,          \
                                            cudaStream_t);                                        \
  template cudaError_t launch_channels_first(const ConvGeometry&, const T*, T*, int, int,         \
                                             cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_UNROLL)

}  // namespace ridgeline::cuda
