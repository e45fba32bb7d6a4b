#include "ridgeline/cuda/plain/accumulate.cuh"
#include "ridgeline/cuda/plain/conv.h"
#include "ridgeline/cuda/plain/index.cuh"

namespace ridgeline::cuda {
namespace {

template <typename T>
__global__ void conv2d_plain_kernel(ConvGeometry g, const T* x, const T* w, MixedIn<T> b, T* y) {
  using A = Accumulated<T>;
  const int64_t count = int64_t(g.n) * g.k * g.p * g.q;
  for (int64_t j = first_index(); j < count; j += index_stride()) {
    const int column = int(j % g.q), row = int(j / g.q % g.p);
    const int o = int(j / (int64_t(g.q) * g.p) % g.k);
    const int64_t i = j / (int64_t(g.q) * g.p * g.k);
    const int top = row * g.down.stride - g.down.pad, left = column * g.right.stride - g.right.pad;
    const T* image = x + (i * g.c + o / g.group_out * g.group_in) * g.h * g.w;
    const T* tap = w + int64_t(o) * g.group_in * g.down.kernel * g.right.kernel;
    A sum = b ? b[o] : A(0);
    for (int c = 0; c < g.group_in; ++c, image += int64_t(g.h) * g.w) {
      for (int u = 0; u < g.down.kernel; ++u, tap += g.right.kernel) {
        const int r = top + u * g.down.dilation;
        if (r < 0 || r >= g.h) continue;
        for (int v = 0; v < g.right.kernel; ++v) {
          const int s = left + v * g.right.dilation;
          if (s >= 0 && s < g.w) sum += A(image[int64_t(r) * g.w + s]) * A(tap[v]);
        }
      }
    }
    y[j] = T(sum);
  }
}

// The output index along one axis whose tap `tap` is at `place`, or -1.
__device__ int output_of(const Axis& axis, int place, int tap, int outputs) {
  const int from = place + axis.pad - tap * axis.dilation;
  if (from < 0 || from % axis.stride != 0) return -1;
  const int output = from / axis.stride;
  return output < outputs ? output : -1;
}

template <typename T>
__global__ void conv2d_grad_x_plain_kernel(ConvGeometry g, const T* dy, const T* w, T* dx) {
  using A = Accumulated<T>;
  const int64_t count = int64_t(g.n) * g.c * g.h * g.w;
  const int64_t filter = int64_t(g.group_in) * g.down.kernel * g.right.kernel;
  for (int64_t j = first_index(); j < count; j += index_stride()) {
    const int s = int(j % g.w), r = int(j / g.w % g.h);
    const int c = int(j / (int64_t(g.w) * g.h) % g.c);
    const int64_t i = j / (int64_t(g.w) * g.h * g.c);
    const int first = c / g.group_in * g.group_out;
    A sum = A(0);
    for (int u = 0; u < g.down.kernel; ++u) {
      const int row = output_of(g.down, r, u, g.p);
      if (row < 0) continue;
      for (int v = 0; v < g.right.kernel; ++v) {
        const int column = output_of(g.right, s, v, g.q);
        if (column < 0) continue;
        const T* slope = dy + ((i * g.k + first) * g.p + row) * g.q + column;
        const T* tap =
            w + first * filter + (int64_t(c % g.group_in) * g.down.kernel + u) * g.right.kernel + v;
        for (int o = 0; o < g.group_out; ++o, slope += int64_t(g.p) * g.q, tap += filter) {
          sum += A(*slope) * A(*tap);
        }
      }
    }
    dx[j] = T(sum);
  }
}

// One block per weight: its threads share the outputs of the batch.
template <typename T>
__global__ void conv2d_grad_w_plain_kernel(ConvGeometry g, const T* x, const T* dy,
                                           MixedOut<T> dw) {
  using A = Accumulated<T>;
  const int64_t at = blockIdx.x;
  const int filter = g.group_in * g.down.kernel * g.right.kernel;
  const int o = int(at / filter), tap = int(at % filter);
  const int v = tap % g.right.kernel, u = tap / g.right.kernel % g.down.kernel;
  const int c = o / g.group_out * g.group_in + tap / (g.right.kernel * g.down.kernel);
  const int pixels = g.p * g.q;
  A sum = A(0);
  for (int64_t j = threadIdx.x; j < int64_t(g.n) * pixels; j += blockDim.x) {
    const int64_t i = j / pixels;
    const int pixel = int(j % pixels);
    const A slope = A(dy[(i * g.k + o) * pixels + pixel]);
    const int r = pixel / g.q * g.down.stride - g.down.pad + u * g.down.dilation;
    const int s = pixel % g.q * g.right.stride - g.right.pad + v * g.right.dilation;
    if (r < 0 || r >= g.h || s < 0 || s >= g.w) continue;
    sum += slope * A(x[((i * g.c + c) * g.h + r) * g.w + s]);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) dw.put(at, sum);
}

// One block per output channel; a warp takes an image.
template <typename T>
__global__ void __launch_bounds__(1024)
    conv2d_grad_b_plain_kernel(int n, int k, int pixels, const T* dy, MixedOut<T> db) {
  using A = Accumulated<T>;
  const int o = blockIdx.x, lane = threadIdx.x % 32;
  A sum = A(0);
  for (int i = threadIdx.x / 32; i < n; i += 32) {
    const T* plane = dy + (int64_t(i) * k + o) * pixels;
#pragma unroll 8
    for (int at = lane; at < pixels; at += 32) sum += A(plane[at]);
  }
  sum = block_sum<1024>(sum);
  if (threadIdx.x == 0) db.put(o, sum);
}

template <typename T>
__global__ void conv2d_add_bias_kernel(int64_t count, int k, int pixels, MixedIn<T> b, T* y) {
  for (int64_t i = first_index(); i < count; i += index_stride()) {
    y[i] = T(Accumulated<T>(y[i]) + b[i / pixels % k]);
  }
}

}  // namespace

template <typename T>
cudaError_t launch_conv2d_add_bias(const ConvGeometry& g, MixedIn<T> b, T* y, cudaStream_t stream) {
  const int64_t count = int64_t(g.n) * g.k * g.p * g.q;
  conv2d_add_bias_kernel<T>
      <<<blocks_for(count), kThreads, 0, stream>>>(count, g.k, g.p * g.q, b, y);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_conv2d_grad_b(const ConvGeometry& g, const T* dy, MixedOut<T> db,
                                 cudaStream_t stream) {
  conv2d_grad_b_plain_kernel<T>
      <<<unsigned(g.k), 1024, 0, stream>>>(int(g.n), g.k, g.p * g.q, dy, db);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_conv2d(const ConvGeometry& g, const T* x, const T* w, MixedIn<T> b, T* y,
                          cudaStream_t stream) {
  const unsigned blocks = blocks_for(int64_t(g.n) * g.k * g.p * g.q);
  conv2d_plain_kernel<T><<<blocks, kThreads, 0, stream>>>(g, x, w, b, y);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_conv2d_grad_x(const ConvGeometry& g, const T* dy, const T* w, T* dx,
                                 cudaStream_t stream) {
  const unsigned blocks = blocks_for(int64_t(g.n) * g.c * g.h * g.w);
  conv2d_grad_x_plain_kernel<T><<<blocks, kThreads, 0, stream>>>(g, dy, w, dx);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_conv2d_grad_w(const ConvGeometry& g, const T* x, const T* dy, MixedOut<T> dw,
                                 MixedOut<T> db, cudaStream_t stream) {
  if (db) launch_conv2d_grad_b<T>(g, dy, db, stream);
  const auto blocks = unsigned(int64_t(g.k) * g.group_in * g.down.kernel * g.right.kernel);
  conv2d_grad_w_plain_kernel<T><<<blocks, kThreads, 0, stream>>>(g, x, dy, dw);
  return cudaGetLastError();
}

#define RIDGELINE_LAUNCH_CONV(T)                                                                  \
  template cudaError_t launch_conv2d_add_bias(const ConvGeometry&, MixedIn<T>, T*, cudaStream_t); \
  template cudaError_t launch_conv2d_grad_b(const ConvGeometry&, const T*, MixedOut<T>,           \
                                            cudaStream_t);                                        \
  template cudaError_t launch_conv2d(const ConvGeometry&, const T*, const T*, MixedIn<T>, T*,     \
                                     cudaStream_t);                                               \
  template cudaError_t launch_conv2d_grad_x(const ConvGeometry&, const T*, const T*, T*,          \
                                            cudaStream_t);                                        \
  template cudaError_t launch_conv2d_grad_w(const ConvGeometry&, const T*, const T*, MixedOut<T>, \
                                            MixedOut<T>, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_CONV)

}  // namespace ridgeline::cuda
