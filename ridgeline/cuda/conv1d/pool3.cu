#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ridgeline/cuda/conv1d/pool3.h"
#include "ridgeline/cuda/plain/index.cuh"

namespace ridgeline::cuda {
namespace {

template <typename T>
constexpr int kEach = 16 / int{sizeof(T)};  // windows per thread

template <typename T, int kCount>
struct alignas(16) Run {
  T values[kCount];
};

// The index of the largest of three values, the first of equals. NaN counts as larger than
// everything else.
template <typename T>
__device__ int largest_of(const T* a) {
  int best = 0;
  float most = float(a[0]);
#pragma unroll
  for (int k = 1; k < 3; ++k) {
    const float value = float(a[k]);
    if (value > most || (isnan(value) && !isnan(most))) {
      best = k;
      most = value;
    }
  }
  return best;
}

// Threads past the last whole run take single windows.
template <typename T, typename F, typename G>
__device__ void for_windows(int64_t windows, F whole, G single) {
  const int64_t runs = windows / kEach<T>;
  for (int64_t j = first_index(); j < runs; j += index_stride()) whole(j * kEach<T>);
  const int64_t rest = runs * kEach<T> + first_index();
  if (rest < windows) single(rest);
}

template <typename T>
__device__ void relu_three(const T* z, T* a, T& y) {
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    const float value = float(z[k]);
    a[k] = value < 0.0f ? T(0.0f) : z[k];  // NaN stays NaN
  }
  const int best = largest_of(a);  // avoids indexing registers
  y = best == 0 ? a[0] : best == 1 ? a[1] : a[2];
}

template <typename T>
__device__ void grad_three(const T* a, T dy, T* dz) {
  const int best = largest_of(a);
#pragma unroll
  for (int k = 0; k < 3; ++k) dz[k] = k == best && float(a[k]) > 0.0f ? dy : T(0.0f);
}

template <typename T>
__global__ void relu_pool3_kernel(int64_t windows, const T* z, T* a, T* y) {
  using Inputs = Run<T, 3 * kEach<T>>;
  using Outputs = Run<T, kEach<T>>;
  for_windows<T>(
      windows,
      [&](int64_t j) {
        const Inputs in = *reinterpret_cast<const Inputs*>(z + 3 * j);
        Inputs positive;
        Outputs most;
#pragma unroll
        for (int e = 0; e < kEach<T>; ++e) {
          relu_three(in.values + 3 * e, positive.values + 3 * e, most.values[e]);
        }
        *reinterpret_cast<Inputs*>(a + 3 * j) = positive;
        *reinterpret_cast<Outputs*>(y + j) = most;
      },
      [&](int64_t j) { relu_three(z + 3 * j, a + 3 * j, y[j]); });
}

template <typename T>
__global__ void pool3_relu_grad_kernel(int64_t windows, const T* a, const T* dy, T* dz) {
  using Inputs = Run<T, 3 * kEach<T>>;
  using Outputs = Run<T, kEach<T>>;
  for_windows<T>(
      windows,
      [&](int64_t j) {
        const Inputs in = *reinterpret_cast<const Inputs*>(a + 3 * j);
        const Outputs change = *reinterpret_cast<const Outputs*>(dy + j);
        Inputs back;
#pragma unroll
        for (int e = 0; e < kEach<T>; ++e) {
          grad_three(in.values + 3 * e, change.values[e], back.values + 3 * e);
        }
        *reinterpret_cast<Inputs*>(dz + 3 * j) = back;
      },
      [&](int64_t j) { grad_three(a + 3 * j, dy[j], dz + 3 * j); });
}

}  // namespace

template <typename T>
cudaError_t launch_relu_pool3(int64_t windows, const T* z, T* a, T* y, cudaStream_t stream) {
  relu_pool3_kernel<T>
      <<<blocks_for(windows / kEach<T> + 1), kThreads, 0, stream>>>(windows, z, a, y);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_pool3_relu_grad(int64_t windows, const T* a, const T* dy, T* dz,
                                   cudaStream_t stream) {
  pool3_relu_grad_kernel<T>
      <<<blocks_for(windows / kEach<T> + 1), kThreads, 0, stream>>>(windows, a, dy, dz);
  return cudaGetLastError();
}

#define RIDGELINE_LAUNCH_POOL3(T)                                                  \
  template cudaError_t launch_relu_pool3(int64_t, const T*, T*, T*, cudaStream_t); \
  template cudaError_t launch_pool3_relu_grad(int64_t, const T*, const T*, T*, cudaStream_t);
RIDGELINE_LAUNCH_POOL3(float)
RIDGELINE_LAUNCH_POOL3(__nv_bfloat16)
RIDGELINE_LAUNCH_POOL3(__half)

}  // namespace ridgeline::cuda
