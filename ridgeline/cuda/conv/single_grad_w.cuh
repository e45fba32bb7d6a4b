#pragma once

// dw of a convolution with one input channel, as a matrix product over the pixels of the batch:
// rows are output channels, and a tile of columns is the taps v = 0..7 of one row u of the filter.
// Factors are halves, or 32-bit values rounded to tf32.
//
// A first launch copies dy and x (padded) to rows that are whole chunks of 16 bytes. A block takes
// a share of the images and copies these rows of each image to shared memory; k runs along the
// pixels of a row. Two neighbouring halves form one word of B, which a tap at an odd v would cut in
// two, so x is stored twice, the second time shifted by a pixel. Blocks leave partial sums in
// memory, and a last launch adds them in order.
#include "ridgeline/cuda/conv/grad_w_sum.cuh"
#include "ridgeline/cuda/conv/single_grad_w.h"
#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/conv/window_store.cuh"
#include "ridgeline/cuda/device/async_copy.cuh"

namespace ridgeline::cuda {

// A chunk of 16 bytes.
template <typename T>
struct alignas(16) SingleChunk {
  static constexpr int kCount = 16 / sizeof(T);
  T values[kCount];
};

// Copies dy, or dy taken back through the pool, to rows of l.columns; a thread makes one chunk of
// two rows. kEven: rows of dy start at even offsets.
template <bool kEven, typename T>
__device__ void pad_output_grad(const OutputGrad<T>& from, const ImplicitShape& shape,
                                const SingleLayout& l, int64_t item, T* to) {
  using Chunk = SingleChunk<T>;
  const int h = shape.out_h(), w = shape.out_w(), chunks = l.columns / Chunk::kCount;
  const int pairs = (h + 1) / 2, q = int(item % chunks) * Chunk::kCount;
  const int64_t plane = item / chunks / pairs;
  const int p = int(item / chunks % pairs) * 2;
  Chunk rows[2];
#pragma unroll
  for (int e = 0; e < Chunk::kCount; ++e) rows[0].values[e] = rows[1].values[e] = T(0.0f);
  if (from.a == nullptr) {
    const T* dy = from.dy + (plane * h + p) * w + q;
#pragma unroll
    for (int e = 0; e < Chunk::kCount; ++e) {
      if (q + e >= w) continue;
      rows[0].values[e] = dy[e];
      if (p + 1 < h) rows[1].values[e] = dy[w + e];
    }
  } else if (p + 1 < h) {  // a pool leaves out an odd row and column
    const T* corner = from.a + (plane * h + p) * w + q;
    const T* dy = from.dy + (plane * (h / 2) + p / 2) * (w / 2) + q / 2;
    constexpr int kWindows = Chunk::kCount / 2;
    const int windows = min(kWindows, w / 2 - q / 2);
    T quads[kWindows][4], slopes[kWindows];
#pragma unroll
    for (int e = 0; e < kWindows && windows > 0; ++e) {
      // a valid window, so that all loads can be issued at once
      const int window = min(e, windows - 1);
      load_quad<kEven>(corner + 2 * window, w, quads[e]);
      slopes[e] = dy[window];
    }
#pragma unroll
    for (int e = 0; e < kWindows; ++e) {
      if (e >= windows) continue;
      const QuadGrad<T> grad(quads[e], slopes[e], from.activation);
#pragma unroll
      for (int i = 0; i < 4; ++i) rows[i / 2].values[2 * e + i % 2] = grad.at(i);
    }
  }
  T* corner = to + (plane * h + p) * l.columns + q;
  *reinterpret_cast<Chunk*>(corner) = rows[0];
  if (p + 1 < h) *reinterpret_cast<Chunk*>(corner + l.columns) = rows[1];
}

// Copies x with its padding to rows of l.x_pitch and, for halves, a second copy that starts a pixel
// later; a thread makes one chunk of each. [image, channel, copy, row]
template <typename T>
__device__ void pad_input(const T* x, const ImplicitShape& shape, const SingleLayout& l,
                          int64_t item, T* to) {
  using Chunk = SingleChunk<T>;
  const int chunks = l.x_pitch / Chunk::kCount, q = int(item % chunks) * Chunk::kCount;
  const int row = int(item / chunks % l.x_rows);
  const int64_t plane = item / chunks / l.x_rows;
  const int y = row - shape.pad, column = q - shape.pad;
  const bool inside = y >= 0 && y < shape.h;
  const T* from = x + (plane * shape.h + y) * shape.w + column;
  T values[Chunk::kCount + 1];
#pragma unroll
  for (int e = 0; e <= Chunk::kCount; ++e) {
    const bool there = inside && column + e >= 0 && column + e < shape.w;
    values[e] = there ? Factor<T>::round(float(from[e])) : T(0.0f);
  }
#pragma unroll
  for (int copy = 0; copy < (sizeof(T) == 2 ? 2 : 1); ++copy) {
    Chunk chunk;
#pragma unroll
    for (int e = 0; e < Chunk::kCount; ++e) chunk.values[e] = values[e + copy];
    const int64_t at = ((plane * l.copies() + copy) * l.x_rows + row) * l.x_pitch + q;
    *reinterpret_cast<Chunk*>(to + at) = chunk;
  }
}

template <typename T>
__global__ void single_grad_w_pad_kernel(ImplicitShape shape, const T* x, OutputGrad<T> dy,
                                         SingleLayout l, T* padded_dy, T* padded_x) {
#if __CUDA_ARCH__ >= 800
  constexpr int kCount = SingleChunk<T>::kCount;
  const int64_t outputs =
      int64_t(shape.n) * shape.k * ((shape.out_h() + 1) / 2) * (l.columns / kCount);
  const int64_t inputs = int64_t(shape.n) * shape.c * l.x_rows * (l.x_pitch / kCount);
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; at < outputs + inputs;
       at += stride) {
    if (at < outputs) {
      if (shape.out_w() % 2 == 0) {
        pad_output_grad<true>(dy, shape, l, at, padded_dy);
      } else {
        pad_output_grad<false>(dy, shape, l, at, padded_dy);
      }
    } else {
      pad_input(x, shape, l, at - outputs, padded_x);
    }
  }
#endif
}

// Copies `bytes` (whole chunks) of each of `planes` planes; a warp takes a plane.
__device__ inline void copy_planes(const std::byte* from, int64_t from_pitch, std::byte* to,
                                   int to_pitch, int planes, int bytes) {
  const int lane = threadIdx.x % 32;
  for (int plane = threadIdx.x / 32; plane < planes; plane += kSingleWarps) {
    for (int at = lane * 16; at < bytes; at += 32 * 16) {
      copy_async_16(to + plane * to_pitch + at, from + plane * from_pitch + at);
    }
  }
}

// The sum of a thread's quarter of an output channel's gradient in shared memory.
template <typename T>
__device__ float sum_quarter(const T* row, int elements) {
  constexpr int kVector = 16 / sizeof(T);
  float sum = 0;
  for (int at = threadIdx.x % 4 * kVector; at < elements; at += 4 * kVector) {
    const uint4 words = *reinterpret_cast<const uint4*>(row + at);
    const T* values = reinterpret_cast<const T*>(&words);
#pragma unroll
    for (int e = 0; e < kVector; ++e) sum += float(values[e]);
  }
  return sum;
}

// A block has 32 output channels, of which each warp takes half; the filter's rows are the tiles of
// columns.
template <typename T, int kFilter>
__global__ void __launch_bounds__(kSingleThreads, 2)
    conv2d_grad_w_single_kernel(ImplicitShape shape, const T* x, const T* dy, bool bias,
                                SingleLayout l, float* partial) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) std::byte memory[];
  constexpr int kStep = kStepBytes / sizeof(T), kWord = 4 / sizeof(T), kSize = int(sizeof(T));
  T *dys = reinterpret_cast<T*>(memory), *xs = dys + kSingleOutputs * l.dy_plane;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, out_h = shape.out_h();
  const int o0 = blockIdx.z * kSingleOutputs, outputs = min(kSingleOutputs, shape.k - o0);
  // Warps with the same output channels split the rows of pixels.
  constexpr int kShares = kSingleWarps / 2;
  const int half = warp % 2, share = warp / 2;

  // Channels past the last stay zero.
  const int staged = (kSingleOutputs * l.dy_plane + l.x_elements()) * kSize / 16;
  for (int at = threadIdx.x; at < staged; at += kSingleThreads) {
    reinterpret_cast<uint4*>(memory)[at] = uint4{0, 0, 0, 0};
  }
  // The taps v of a tile run along its columns, and each lane has one of them.
  const int odd = lane / 4 % kWord;
  const T* const b_lane = xs + odd * l.x_plane + lane / 4 - odd + lane % 4 * kWord;
  const uint32_t a_lane =
      shared_address(dys) + lane / 16 * 16 + (half * 16 + lane % 16) * l.dy_plane * kSize;
  float bias_sum = 0;
  float acc[kFilter][4] = {};
  const int64_t dy_image = int64_t(out_h) * l.columns;    // per channel
  const int64_t x_image = int64_t(l.x_rows) * l.x_pitch;  // per copy
  const int each = (shape.n + gridDim.y - 1) / gridDim.y;
  const int last = min(shape.n, int(blockIdx.y + 1) * each);
  for (int i = blockIdx.y * each; i < last; ++i) {
    __syncthreads();  // the zeros are written, and all threads are done with the previous image
    copy_planes(reinterpret_cast<const std::byte*>(dy + (int64_t(i) * shape.k + o0) * dy_image),
                dy_image * kSize, reinterpret_cast<std::byte*>(dys), l.dy_plane * kSize, outputs,
                int(dy_image) * kSize);
    copy_planes(reinterpret_cast<const std::byte*>(x + int64_t(i) * l.copies() * x_image),
                x_image * kSize, reinterpret_cast<std::byte*>(xs), l.x_plane * kSize, l.copies(),
                int(x_image) * kSize);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    if (bias && threadIdx.x < 4 * kSingleOutputs) {
      bias_sum += sum_quarter(dys + threadIdx.x / 4 * l.dy_plane, int(dy_image));
    }
    for (int p = share; p < out_h; p += kShares) {
      for (int q = 0; q < l.columns; q += kStep) {
        uint32_t a[4];
        load_matrices(a, a_lane + (p * l.columns + q) * kSize);
        if constexpr (sizeof(T) == 4) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            a[e] = __float_as_uint(Factor<float>::round(__uint_as_float(a[e])));
          }
        }
#pragma unroll
        for (int u = 0; u < kFilter; ++u) {
          const T* b = b_lane + (p + u) * l.x_pitch + q;
          const uint32_t b0 = *reinterpret_cast<const uint32_t*>(b);
          const uint32_t b1 = *reinterpret_cast<const uint32_t*>(b + 4 * kWord);
          Factor<T>::mma(acc[u], a, b0, b1);
        }
      }
    }
  }

  constexpr int kTaps = kFilter * kFilter;
  float* to = partial + blockIdx.y * int64_t(kTaps + 1) * shape.k;
  if (bias && threadIdx.x < 4 * kSingleOutputs) {
    bias_sum += __shfl_xor_sync(~0u, bias_sum, 1);
    bias_sum += __shfl_xor_sync(~0u, bias_sum, 2);
    const int o = threadIdx.x / 4;
    if (threadIdx.x % 4 == 0 && o < outputs) to[kTaps * shape.k + o0 + o] = bias_sum;
  }
  // Adds the shares in order.
  __syncthreads();
  auto* sums = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int u = 0; u < kFilter; ++u) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[(u * 4 + e) * kSingleThreads + threadIdx.x] = acc[u][e];
  }
  __syncthreads();
#pragma unroll 1
  for (int at = threadIdx.x; at < kTaps * kSingleOutputs; at += kSingleThreads) {
    const int o = at % kSingleOutputs, tap = at / kSingleOutputs, u = tap / kFilter,
              v = tap % kFilter;
    if (o >= outputs) continue;
    const int e = o / 8 % 2 * 2 + v % 2, from = o / 16 * 32 + o % 8 * 4 + v / 2;
    const float* part = sums + (u * 4 + e) * kSingleThreads + from;
    float sum = 0;
    for (int s = 0; s < kShares; ++s) sum += part[s * 2 * 32];
    to[tap * shape.k + o0 + o] = sum;
  }
#endif
}

template <typename T, int kFilter>
cudaError_t launch_single_grad_w(const ImplicitGradsArgs<T>& args, std::byte* workspace, int sms,
                                 cudaStream_t stream) {
  const ImplicitShape& shape = args.shape;
  const SingleLayout l = single_layout(shape, sizeof(T), sms);
  const SingleWorkspace at(shape, l);
  auto *dy = reinterpret_cast<T*>(workspace + at.dy), *x = reinterpret_cast<T*>(workspace + at.x);
  auto* partial = reinterpret_cast<float*>(workspace + at.partial);
  const auto kernel = conv2d_grad_w_single_kernel<T, kFilter>;
  const auto bytes = int(single_shared(shape, l));
  const cudaError_t error = allow_shared(kernel, bytes);
  if (error != cudaSuccess) return error;
  single_grad_w_pad_kernel<T>
      <<<unsigned(sms * 8), 256, 0, stream>>>(shape, args.x, args.dy, l, dy, x);
  const dim3 grid(1, unsigned(l.groups), unsigned(l.output_blocks));
  kernel<<<grid, kSingleThreads, bytes, stream>>>(shape, x, dy, bool(args.db), l, partial);
  constexpr int kTaps = kFilter * kFilter;
  const int64_t size = int64_t(kTaps + 1) * shape.k;
  return launch_grad_w_sum<T>({partial, l.groups, size},
                              {partial + kTaps * shape.k, l.groups, size}, kTaps, shape.k, args.dw,
                              args.db, stream);
}

}  // namespace ridgeline::cuda
