#pragma once

// dw as a matrix product over the pixels of the batch: rows are output channels, columns the
// filter's taps. Factors are halves, or 32-bit ones rounded to tf32.
//
// A first kernel copies dy and x (padded) to rows that are whole chunks of 16 bytes. A block takes
// a share of the images and, for each, these rows to shared memory: k runs along the pixels of a
// row. One row u of the filter a block: a tile of eight columns is eight input channels at one tap
// v. With one input channel a tile is the taps v = 0..7 of one row u, and a block does all rows.
// Two neighbouring halves are one word of B, which a tap at an odd v would cut through: x lies
// there twice, once shifted by a pixel. Blocks leave partial sums in memory, added in order by a
// last kernel.
#include "ridgeline/cuda/conv/grad_w_layout.h"
#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/conv/window_store.cuh"
#include "ridgeline/cuda/device/async_copy.cuh"

namespace ridgeline::cuda {

// A chunk of 16 bytes.
template <typename T>
struct alignas(16) GradWChunk {
  static constexpr int kCount = 16 / sizeof(T);
  T values[kCount];
};

// dy, or what it is where a pool follows, with rows of l.columns: two rows of a chunk a thread.
template <typename T>
__device__ void pad_output_grad(const OutputGrad<T>& from, const ImplicitShape& shape,
                                const GradWLayout& l, int64_t item, T* to) {
  using Chunk = GradWChunk<T>;
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
  } else if (p + 1 < h) {  // a pool leaves an odd row and column out
    const T* corner = from.a + (plane * h + p) * w + q;
    const T* dy = from.dy + (plane * (h / 2) + p / 2) * (w / 2) + q / 2;
#pragma unroll
    for (int e = 0; e < Chunk::kCount; e += 2) {
      if (q + e + 1 >= w) continue;
      T quad[4];
      load_two(corner + e, w % 2 == 0, quad[0], quad[1]);
      load_two(corner + w + e, w % 2 == 0, quad[2], quad[3]);
      const QuadGrad<T> grad(quad, dy[e / 2], from.curve);
#pragma unroll
      for (int i = 0; i < 4; ++i) rows[i / 2].values[e + i % 2] = grad.at(i);
    }
  }
  T* corner = to + (plane * h + p) * l.columns + q;
  *reinterpret_cast<Chunk*>(corner) = rows[0];
  if (p + 1 < h) *reinterpret_cast<Chunk*>(corner + l.columns) = rows[1];
}

// x with its padding, rows of l.x_pitch, and of halves a copy that starts a pixel later: a chunk of
// each a thread. [image, channel, copy, row]
template <typename T>
__device__ void pad_input(const T* x, const ImplicitShape& shape, const GradWLayout& l,
                          int64_t item, T* to) {
  using Chunk = GradWChunk<T>;
  const int chunks = l.x_pitch / Chunk::kCount, q = int(item % chunks) * Chunk::kCount;
  const int row = int(item / chunks % l.x_full);
  const int64_t plane = item / chunks / l.x_full;
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
    const int64_t at = ((plane * l.copies() + copy) * l.x_full + row) * l.x_pitch + q;
    *reinterpret_cast<Chunk*>(to + at) = chunk;
  }
}

template <typename T>
__global__ void grad_w_pad_kernel(ImplicitShape shape, const T* x, OutputGrad<T> dy, GradWLayout l,
                                  T* padded_dy, T* padded_x) {
#if __CUDA_ARCH__ >= 800
  constexpr int kCount = GradWChunk<T>::kCount;
  const int64_t outputs =
      int64_t(shape.n) * shape.k * ((shape.out_h() + 1) / 2) * (l.columns / kCount);
  const int64_t inputs = int64_t(shape.n) * shape.c * l.x_full * (l.x_pitch / kCount);
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; at < outputs + inputs;
       at += stride) {
    if (at < outputs) {
      pad_output_grad(dy, shape, l, at, padded_dy);
    } else {
      pad_input(x, shape, l, at - outputs, padded_x);
    }
  }
#endif
}

// `bytes` (whole chunks) of each of `planes` planes, a warp a plane.
__device__ inline void copy_planes(const std::byte* from, int64_t from_pitch, std::byte* to,
                                   int to_pitch, int planes, int bytes) {
  const int lane = threadIdx.x % 32;
  for (int plane = threadIdx.x / 32; plane < planes; plane += kGradWWarps) {
    for (int at = lane * 16; at < bytes; at += 32 * 16) {
      copy_async_16(to + plane * to_pitch + at, from + plane * from_pitch + at);
    }
  }
}

// The sum of a thread's quarter of an output channel's staged gradient.
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

// kTiles * 16 output channels, half of them a warp; kFilter tiles of columns a warp.
template <typename T, int kTiles, int kFilter, bool kSingle>
__global__ void __launch_bounds__(kGradWThreads, 2)
    conv2d_grad_w_implicit_kernel(ImplicitShape shape, const T* x, const T* dy, bool bias,
                                  GradWLayout l, float* partial) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) std::byte memory[];
  constexpr int kStep = kStepBytes / sizeof(T), kWord = 4 / sizeof(T), kEach = kTiles / 2;
  constexpr int kOutputs = kTiles * 16, kSize = int(sizeof(T));
  T *dys = reinterpret_cast<T*>(memory), *xs = dys + kOutputs * l.dy_plane;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int out_h = shape.out_h();
  const int u0 = kSingle ? 0 : blockIdx.x % kFilter;
  const int c0 = kSingle ? 0 : blockIdx.x / kFilter * kGradWChannels;
  const int o0 = blockIdx.z * kOutputs, outputs = min(kOutputs, shape.k - o0);
  const int channels = min(l.channels, shape.c - c0);
  const bool sums_bias = bias && blockIdx.x == 0;
  // Warps that share a tile of columns and the outputs share the rows of pixels.
  const int tile = warp % l.tiles, half = warp / l.tiles % 2, share = warp / l.tiles / 2;
  const int shares = kGradWWarps / l.tiles / 2;

  // Channels past the last stay zero.
  const int staged = (kOutputs * l.dy_plane + l.x_elements()) * kSize / 16;
  for (int at = threadIdx.x; at < staged; at += kGradWThreads) {
    reinterpret_cast<uint4*>(memory)[at] = uint4{0, 0, 0, 0};
  }
  // One channel: the taps v of a tile lie along its columns, and each lane has one of them.
  const int odd = kSingle ? lane / 4 % kWord : 0;
  const T* const b_lane = kSingle ? xs + odd * l.x_plane + lane / 4 - odd + lane % 4 * kWord
                                  : xs + (tile * 8 + lane / 4) * l.x_plane + lane % 4 * kWord;
  const uint32_t a_lane =
      shared_address(dys) + lane / 16 * 16 + (half * kEach * 16 + lane % 16) * l.dy_plane * kSize;
  float bias_sum = 0;
  float acc[kEach][kFilter][4] = {};
  const int64_t dy_image = int64_t(out_h) * l.columns;    // of one channel
  const int64_t x_image = int64_t(l.x_full) * l.x_pitch;  // of one copy
  const int each = (shape.n + gridDim.y - 1) / gridDim.y;
  const int last = min(shape.n, int(blockIdx.y + 1) * each);
  for (int i = blockIdx.y * each; i < last; ++i) {
    __syncthreads();  // the zeros are there, and all are done with the image before
    copy_planes(reinterpret_cast<const std::byte*>(dy + (int64_t(i) * shape.k + o0) * dy_image),
                dy_image * kSize, reinterpret_cast<std::byte*>(dys), l.dy_plane * kSize, outputs,
                int(dy_image) * kSize);
    for (int copy = 0; copy < l.copies(); ++copy) {
      const T* from =
          x + ((int64_t(i) * shape.c + c0) * l.copies() + copy) * x_image + u0 * l.x_pitch;
      copy_planes(reinterpret_cast<const std::byte*>(from), l.copies() * x_image * kSize,
                  reinterpret_cast<std::byte*>(xs + copy * l.channels * l.x_plane),
                  l.x_plane * kSize, channels, l.x_rows * l.x_pitch * kSize);
    }
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    if (sums_bias && threadIdx.x < 4 * kOutputs) {
      bias_sum += sum_quarter(dys + threadIdx.x / 4 * l.dy_plane, int(dy_image));
    }
    for (int p = share; p < out_h; p += shares) {
      for (int q = 0; q < l.columns; q += kStep) {
        uint32_t a[kEach][4];
#pragma unroll
        for (int m = 0; m < kEach; ++m) {
          load_matrices(a[m], a_lane + (m * 16 * l.dy_plane + p * l.columns + q) * kSize);
          if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              a[m][e] = __float_as_uint(Factor<float>::round(__uint_as_float(a[m][e])));
            }
          }
        }
#pragma unroll
        for (int j = 0; j < kFilter; ++j) {
          const int row = kSingle ? p + j : p, v = kSingle ? 0 : j;
          const int shifted = v % kWord * (l.channels * l.x_plane - 1);  // to the other copy
          const T* b = b_lane + row * l.x_pitch + q + v + shifted;
          const uint32_t b0 = *reinterpret_cast<const uint32_t*>(b);
          const uint32_t b1 = *reinterpret_cast<const uint32_t*>(b + 4 * kWord);
#pragma unroll
          for (int m = 0; m < kEach; ++m) Factor<T>::mma(acc[m][j], a[m], b0, b1);
        }
      }
    }
  }

  const int64_t weights = int64_t(shape.k) * shape.c * kFilter * kFilter;
  float* to = partial + blockIdx.y * (weights + shape.k);
  if (sums_bias && threadIdx.x < 4 * kOutputs) {
    bias_sum += __shfl_xor_sync(~0u, bias_sum, 1);
    bias_sum += __shfl_xor_sync(~0u, bias_sum, 2);
    const int o = threadIdx.x / 4;
    if (threadIdx.x % 4 == 0 && o < outputs) to[weights + o0 + o] = bias_sum;
  }
  if (!kSingle && shares == 1) {  // each sum is one thread's
    const int c = c0 + tile * 8 + lane % 4 * 2, first = half * kEach * 16 + lane / 4;
    float* mine = to + int64_t((c * kFilter + u0) * kFilter) * shape.k + o0 + first;
#pragma unroll
    for (int m = 0; m < kEach; ++m) {
#pragma unroll
      for (int j = 0; j < kFilter; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const bool inside = c + e % 2 < shape.c && first + m * 16 + e / 2 * 8 < outputs;
          const int at = (e % 2 * kFilter * kFilter + j) * shape.k + m * 16 + e / 2 * 8;
          if (inside) mine[at] = acc[m][j][e];
        }
      }
    }
    return;
  }
  // The shares of a tile, added in order.
  __syncthreads();
  auto* sums = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int m = 0; m < kEach; ++m) {
#pragma unroll
    for (int j = 0; j < kFilter; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums[((m * kFilter + j) * 4 + e) * kGradWThreads + threadIdx.x] = acc[m][j][e];
      }
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int at = threadIdx.x; at < l.tiles * kFilter * 8 * kOutputs; at += kGradWThreads) {
    const int o = at % kOutputs, column = at / kOutputs % 8, j = at / (kOutputs * 8) % kFilter;
    const int of = at / (kOutputs * 8 * kFilter);
    const int c = kSingle ? 0 : c0 + of * 8 + column;
    const int u = kSingle ? j : u0, v = kSingle ? column : j;
    if (o >= outputs || c >= shape.c || v >= kFilter) continue;
    const int m = o / 16, e = o / 8 % 2 * 2 + column % 2;
    const int from = (m / kEach * l.tiles + of) * 32 + o % 8 * 4 + column / 2;
    const float* part = sums + ((m % kEach * kFilter + j) * 4 + e) * kGradWThreads + from;
    float sum = 0;
    for (int s = 0; s < shares; ++s) sum += part[s * 2 * l.tiles * 32];
    to[int64_t((c * kFilter + u) * kFilter + v) * shape.k + o0 + o] = sum;
  }
#endif
}

// dw[o, tap] and db[o]: the groups' partial sums, those of every eighth group in order by a warp,
// then the eight. partial is [group][tap, o | o]. 32 numbers a block.
template <typename T>
__global__ void __launch_bounds__(256) grad_w_sum_kernel(const float* partial, int groups, int taps,
                                                         int k, LooseOut<T> dw, LooseOut<T> db) {
  __shared__ float parts[8][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int at = blockIdx.x * 32 + lane, size = (taps + 1) * k;
  float sum = 0;
  if (at < size) {
#pragma unroll 8
    for (int g = warp; g < groups; g += 8) sum += partial[int64_t(g) * size + at];
  }
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || at >= (db ? size : taps * k)) return;
  for (int w = 1; w < 8; ++w) sum += parts[w][lane];
  const int o = at % k, tap = at / k;
  if (tap < taps) {
    dw.put(int64_t(o) * taps + tap, sum);
  } else {
    db.put(o, sum);
  }
}

template <typename T, int kTiles, int kFilter, bool kSingle>
cudaError_t launch_grad_w(const ImplicitGradWArgs<T>& args, std::byte* workspace, int processors,
                          cudaStream_t stream) {
  const ImplicitShape& shape = args.shape;
  const GradWLayout l = grad_w_layout(shape, sizeof(T), processors);
  const GradWWorkspace at(shape, l);
  auto *dy = reinterpret_cast<T*>(workspace + at.dy), *x = reinterpret_cast<T*>(workspace + at.x);
  auto* partial = reinterpret_cast<float*>(workspace + at.partial);
  const auto kernel = conv2d_grad_w_implicit_kernel<T, kTiles, kFilter, kSingle>;
  const auto bytes = int(grad_w_shared(shape, l));
  const cudaError_t error = allow_shared(kernel, bytes);
  if (error != cudaSuccess) return error;
  grad_w_pad_kernel<T>
      <<<unsigned(processors * 8), 256, 0, stream>>>(shape, args.x, args.dy, l, dy, x);
  const dim3 grid(unsigned(l.channel_blocks * l.rows_blocks), unsigned(l.groups),
                  unsigned(l.output_blocks));
  kernel<<<grid, kGradWThreads, bytes, stream>>>(shape, x, dy, bool(args.db), l, partial);
  const int taps = shape.c * kFilter * kFilter;
  const auto blocks = unsigned(((taps + 1) * shape.k + 31) / 32);
  grad_w_sum_kernel<T>
      <<<blocks, 256, 0, stream>>>(partial, l.groups, taps, shape.k, args.dw, args.db);
  return cudaGetLastError();
}

template <typename T, int kFilter>
cudaError_t launch_grad_w(const ImplicitGradWArgs<T>& args, std::byte* workspace, int processors,
                          cudaStream_t stream) {
  if (args.shape.c == 1) {
    return launch_grad_w<T, 2, kFilter, true>(args, workspace, processors, stream);
  }
  return grad_w_row_tiles(args.shape) == 2
             ? launch_grad_w<T, 2, kFilter, false>(args, workspace, processors, stream)
             : launch_grad_w<T, 4, kFilter, false>(args, workspace, processors, stream);
}

template <typename T>
cudaError_t launch_conv2d_grad_w_implicit(const ImplicitGradWArgs<T>& args, void* workspace,
                                          int processors, cudaStream_t stream) {
  auto* bytes = static_cast<std::byte*>(workspace);
  switch (args.shape.filter) {
    case 3:
      return launch_grad_w<T, 3>(args, bytes, processors, stream);
    case 5:
      return launch_grad_w<T, 5>(args, bytes, processors, stream);
    default:
      return launch_grad_w<T, 7>(args, bytes, processors, stream);
  }
}

}  // namespace ridgeline::cuda
