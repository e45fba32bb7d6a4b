#pragma once

// The epilogue of a convolution on tensor cores: writes the sums of a block's output channels from
// shared to global memory with bias, activation and pool. Going through shared memory keeps the
// code to one short loop, and neighbouring threads store neighbouring pixels.

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/nan_max.cuh"
#include "ridgeline/cuda/conv/tensor.cuh"

namespace ridgeline::cuda {

// The pitch between the sums of two channels for this many rows of A. Accumulators, whose lanes
// hold eight rows of four pairs of channels, are stored without bank conflicts.
__host__ __device__ constexpr int sums_pitch(int rows) { return rows + 4; }

// Stores the accumulators of a tile of 16 rows by 8 channels or, with kAdds, adds them to what is
// there. `to` points to the sums of its first row and channel.
template <bool kAdds = false>
__device__ inline void put_sums(const float (&acc)[4], float* to, int pitch) {
  const int lane = threadIdx.x % 32;
  float* mine = to + lane % 4 * 2 * pitch + lane / 4;
  const int places[4] = {0, pitch, 8, pitch + 8};
#pragma unroll
  for (int e = 0; e < 4; ++e) mine[places[e]] = kAdds ? mine[places[e]] + acc[e] : acc[e];
}

// What a block stores: outputs o0 .. o0 + count of image i.
template <typename T>
struct BlockOutput {
  const ImplicitShape& shape;
  const float* biases;  // of these outputs, in shared memory
  T* y;
  int64_t i;
  int o0, count;

  __device__ int64_t plane(int o) const { return i * shape.k + o0 + o; }
};

// Copies the biases of outputs o0 .. o0 + kOutputs to shared memory; a barrier must follow before
// other threads read them.
template <int kOutputs, typename T>
__device__ void stage_biases(const MixedIn<T>& b, int o0, int k, float* to) {
  if (threadIdx.x >= kOutputs) return;
  const int o = o0 + int(threadIdx.x);
  to[threadIdx.x] = b && o < k ? b[o] : 0.0f;
}

// Stores pixels first .. first + rows in order, with kThreads threads.
template <int kThreads, typename T>
__device__ void store_pixels(const BlockOutput<T>& out, const float* sums, int pitch, int first,
                             int rows) {
  const int pixels = out.shape.out_h() * out.shape.out_w();
  const int here = min(rows, pixels - first);
  for (int o = threadIdx.x / 32; o < out.count; o += kThreads / 32) {
    const float bias = out.biases[o];
    T* y = out.y + out.plane(o) * pixels + first;
    for (int at = threadIdx.x % 32; at < here; at += 32) y[at] = T(sums[o * pitch + at] + bias);
  }
}

// Stores rows / 4 windows of 2 x 2 from `first` on. 32 rows are eight windows: the upper left
// pixels of all, then the upper right, lower left and lower right ones. kKeeps: pool.a is wanted.
template <int kThreads, ActivationFn kActivation, bool kKeeps, typename T>
__device__ void store_windows_as(const BlockOutput<T>& out, const PooledOutput<T>& pool,
                                 const float* sums, int pitch, int first, int rows) {
  const int out_h = out.shape.out_h(), out_w = out.shape.out_w(), area = out_h * out_w;
  const int columns = out_w / 2, windows = out_h / 2 * columns;
  const int here = min(rows / 4, windows - first);
  struct alignas(2 * sizeof(T)) Two {
    T left, right;
  };
  T* const y = out.y + out.plane(0) * windows + first;
  T* const a = kKeeps ? pool.a + out.plane(0) * area : nullptr;
  const auto activation = [&](float x) {
    if constexpr (kActivation == ActivationFn::relu) return x < 0.0f ? 0.0f : x;
    return fast_activation<T>(pool.activation, x);
  };
  for (int at = threadIdx.x % 32; at < here; at += 32) {
    const int window = first + at, corner = window / columns * 2 * out_w + window % columns * 2;
    const float* column = sums + at / 8 * 32 + at % 8;
#pragma unroll 2
    for (int o = threadIdx.x / 32; o < out.count; o += kThreads / 32) {
      const float bias = out.biases[o];
      const float* sum = column + o * pitch;
      if constexpr (!kKeeps) {
        const float most = nan_max(nan_max(sum[0], sum[8]), nan_max(sum[16], sum[24]));
        y[o * windows + at] = T(activation(most + bias));
      } else {
        const Two upper{T(activation(sum[0] + bias)), T(activation(sum[8] + bias))};
        const Two lower{T(activation(sum[16] + bias)), T(activation(sum[24] + bias))};
        // Extents are even if this is wanted.
        *reinterpret_cast<Two*>(a + o * area + corner) = upper;
        *reinterpret_cast<Two*>(a + o * area + corner + out_w) = lower;
        y[o * windows + at] = T(nan_max(nan_max(float(upper.left), float(upper.right)),
                                        nan_max(float(lower.left), float(lower.right))));
      }
    }
  }
}

template <int kThreads, typename T>
__device__ void store_windows(const BlockOutput<T>& out, const PooledOutput<T>& pool,
                              const float* sums, int pitch, int first, int rows) {
  if (pool.a == nullptr) {
    store_windows_as<kThreads, ActivationFn::none, false>(out, pool, sums, pitch, first, rows);
  } else if (pool.activation == ActivationFn::relu) {
    store_windows_as<kThreads, ActivationFn::relu, true>(out, pool, sums, pitch, first, rows);
  } else {
    store_windows_as<kThreads, ActivationFn::none, true>(out, pool, sums, pitch, first, rows);
  }
}

// Lets a GPU function have this much dynamic shared memory, and as many blocks per SM as fit.
template <typename Kernel>
cudaError_t allow_shared(Kernel kernel, int bytes) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

// The shared memory that a block may have on the current device.
inline cudaError_t shared_of_block(size_t& bytes) {
  int device = 0, value = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  bytes = size_t(value);
  return error;
}

}  // namespace ridgeline::cuda
