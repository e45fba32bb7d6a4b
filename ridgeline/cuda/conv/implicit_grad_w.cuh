#pragma once

// dw as a matrix product over the pixels of the batch: rows are output channels, columns the
// filter's taps. Factors are halves, or 32-bit ones rounded to tf32.
//
// A block takes a share of the images and, for each, dy and x to shared memory, as they lie: k runs
// along the pixels of a row. One row u of the filter a block: a tile of eight columns is eight
// input channels at one tap v. With one input channel a tile is the taps v = 0..7 of one row u, and
// a block does all rows. Two neighbouring halves are one word of B, which a tap at an odd v would
// cut through: x lies there twice, once shifted by a pixel. Blocks leave partial sums in memory,
// added in order by a second kernel.
#include <algorithm>

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/tensor.cuh"

namespace ridgeline::cuda {

constexpr int kGradWWarps = 8, kGradWThreads = kGradWWarps * 32;
constexpr int kGradWChannels = 32;  // input channels of a block: up to four tiles

// Extents in shared memory, in elements.
struct GradWLayout {
  int width;                        // bytes of an element
  int columns;                      // of dy's rows, padded with zeros to whole steps
  int dy_pitch;                     // between channels of dy: an odd number of 16 bytes
  int x_rows, x_pitch, x_plane;     // x_plane % 8 == 4 words: eight channels in different banks
  int channels;                     // of x, in a block
  int tiles;                        // of eight of them; warps share these, then the rows of pixels
  int channel_blocks, rows_blocks;  // blocks that share the work on an image
  int output_blocks;                // of row_tiles * 16 output channels
  int groups;                       // shares of the images

  __host__ __device__ bool single() const { return channels == 1; }
  __host__ __device__ int copies() const { return width == 2 ? 2 : 1; }
  __host__ __device__ int x_elements() const { return copies() * channels * x_plane; }
};

inline int grad_w_row_tiles(const ImplicitShape& shape) {
  return shape.c == 1 || shape.k <= 32 ? 2 : 4;
}

inline GradWLayout grad_w_layout(const ImplicitShape& shape, int width, int processors) {
  GradWLayout l;
  const int word = 4 / width, step = kStepBytes / width;
  l.width = width;
  l.columns = (shape.out_w() + step - 1) / step * step;
  l.dy_pitch = shape.out_h() * l.columns + 16 / width;
  l.channels = shape.c == 1 ? 1 : kGradWChannels;
  l.tiles = shape.c <= 8 ? 1 : shape.c <= 16 ? 2 : 4;
  l.x_rows = l.single() ? shape.out_h() + shape.filter - 1 : shape.out_h();
  const int reach = l.columns + (l.single() ? 8 : shape.filter) - 1;
  l.x_pitch = (reach + word - 1) / word * word;
  l.x_plane = ((l.x_rows * l.x_pitch / word + 3) / 8 * 8 + 4) * word;
  l.channel_blocks = (shape.c + l.channels - 1) / l.channels;
  l.rows_blocks = l.single() ? 1 : shape.filter;
  const int outputs = grad_w_row_tiles(shape) * 16;
  l.output_blocks = (shape.k + outputs - 1) / outputs;
  const int blocks = l.channel_blocks * l.rows_blocks * l.output_blocks;
  l.groups = std::clamp(2 * processors / blocks, 1, shape.n);
  const int each = (shape.n + l.groups - 1) / l.groups;
  l.groups = (shape.n + each - 1) / each;
  return l;
}

// Sums of the warps that share a tile meet where the images were.
inline size_t grad_w_shared(const ImplicitShape& shape, const GradWLayout& l) {
  const int tiles = grad_w_row_tiles(shape);
  const size_t staging = (size_t(tiles) * 16 * l.dy_pitch + l.x_elements()) * l.width;
  const size_t exchange = size_t(kGradWThreads) * tiles * shape.filter * 16;
  return std::max(staging, exchange);
}

#ifdef __CUDACC__

// dy, or what it is where a pool follows, as a block's matrix A: rows as they lie in the image.
template <typename T>
__device__ void stage_output_grad(const OutputGrad<T>& from, int64_t plane, int channels, int h,
                                  int w, const GradWLayout& l, T* to) {
  if (from.a == nullptr) {
    const T* dy = from.dy + plane * h * w;
    if (sizeof(T) == 2 && w % 2 == 0) {
      for_items<kGradWThreads>(reinterpret_cast<const uint32_t*>(dy), channels, h, w / 2,
                               [&](int c, int y, int column, uint32_t two) {
                                 const int at = c * l.dy_pitch + y * l.columns + 2 * column;
                                 *reinterpret_cast<uint32_t*>(to + at) = two;
                               });
    } else {
      for_items<kGradWThreads>(dy, channels, h, w, [&](int c, int y, int column, T value) {
        to[c * l.dy_pitch + y * l.columns + column] = value;
      });
    }
    return;
  }
  for_quad_grads<kGradWThreads>(
      from.a + plane * h * w, from.dy + plane * (h / 2) * (w / 2), from.curve, channels, h, w,
      [&](int c, int y, int column, const QuadGrad<T>& quad) {
        T* corner = to + c * l.dy_pitch + y * l.columns + column;
        struct alignas(2 * sizeof(T)) Two {
          T first, second;
        };
        *reinterpret_cast<Two*>(corner) = {quad.at(0), quad.at(1)};
        *reinterpret_cast<Two*>(corner + l.columns) = {quad.at(2), quad.at(3)};
      });
}

// Rows of x that taps of row u0 meet (all taps with a single channel), padded.
template <typename T>
__device__ void stage_input(const T* x, const ImplicitShape& shape, int channels, int u0,
                            const GradWLayout& l, T* to) {
  const int second = l.channels * l.x_plane;  // where the shifted copy starts
  const auto put = [&](int c, int y, int column, T value) {
    const int row = y + shape.pad - u0;
    if (row < 0 || row >= l.x_rows) return;
    const int at = c * l.x_plane + row * l.x_pitch + column + shape.pad;
    to[at] = Factor<T>::round(float(value));
    if (sizeof(T) == 2 && column + shape.pad > 0) to[second + at - 1] = value;
  };
  if (sizeof(T) == 2 && shape.w % 2 == 0) {
    for_items<kGradWThreads>(reinterpret_cast<const uint32_t*>(x), channels, shape.h, shape.w / 2,
                             [&](int c, int y, int column, uint32_t two) {
                               const T* halves = reinterpret_cast<const T*>(&two);
                               put(c, y, 2 * column, halves[0]);
                               put(c, y, 2 * column + 1, halves[1]);
                             });
  } else {
    for_items<kGradWThreads>(x, channels, shape.h, shape.w, put);
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

// kTiles * 16 output channels; kFilter tiles of columns a warp.
template <typename T, int kTiles, int kFilter, bool kSingle>
__global__ void __launch_bounds__(kGradWThreads, kTiles* kFilter <= 20 ? 2 : 1)
    conv2d_grad_w_implicit_kernel(ImplicitShape shape, const T* x, OutputGrad<T> dy, bool bias,
                                  GradWLayout l, float* partial) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) std::byte memory[];
  constexpr int kStep = kStepBytes / sizeof(T), kWord = 4 / sizeof(T);
  constexpr int kOutputs = kTiles * 16;
  T *dys = reinterpret_cast<T*>(memory), *xs = dys + kOutputs * l.dy_pitch;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int out_h = shape.out_h(), out_w = shape.out_w();
  const int u0 = kSingle ? 0 : blockIdx.x % kFilter;
  const int c0 = kSingle ? 0 : blockIdx.x / kFilter * kGradWChannels;
  const int o0 = blockIdx.z * kOutputs, outputs = min(kOutputs, shape.k - o0);
  const int channels = min(l.channels, shape.c - c0);
  const bool sums_bias = bias && blockIdx.x == 0;
  // Warps that share a tile of columns share the rows of pixels.
  const int tile = warp % l.tiles, share = warp / l.tiles, shares = kGradWWarps / l.tiles;

  const int staged = (kOutputs * l.dy_pitch + l.x_elements()) * int(sizeof(T)) / 4;
  for (int at = threadIdx.x; at < staged; at += kGradWThreads) {
    reinterpret_cast<uint32_t*>(memory)[at] = 0;
  }
  // One channel: the taps v of a tile lie along its columns, and each lane has one of them.
  const int odd = kSingle ? lane / 4 % kWord : 0;
  const T* const b_lane = kSingle ? xs + odd * l.x_plane + lane / 4 - odd + lane % 4 * kWord
                                  : xs + (tile * 8 + lane / 4) * l.x_plane + lane % 4 * kWord;
  const uint32_t a_lane =
      shared_address(dys) + (lane % 16) * l.dy_pitch * int(sizeof(T)) + lane / 16 * 16;
  float bias_sum = 0;
  float acc[kTiles][kFilter][4] = {};
  const int each = (shape.n + gridDim.y - 1) / gridDim.y;
  const int last = min(shape.n, int(blockIdx.y + 1) * each);
  for (int i = blockIdx.y * each; i < last; ++i) {
    __syncthreads();  // the zeros are there, and all are done with the image before
    stage_output_grad(dy, int64_t(i) * shape.k + o0, outputs, out_h, out_w, l, dys);
    stage_input(x + (int64_t(i) * shape.c + c0) * shape.h * shape.w, shape, channels, u0, l, xs);
    __syncthreads();
    if (sums_bias && threadIdx.x < 4 * kOutputs) {
      bias_sum += sum_quarter(dys + threadIdx.x / 4 * l.dy_pitch, out_h * l.columns);
    }
    for (int p = share; p < out_h; p += shares) {
      for (int q = 0; q < l.columns; q += kStep) {
        uint32_t a[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          load_matrices(a[m], a_lane + (m * 16 * l.dy_pitch + p * l.columns + q) * int(sizeof(T)));
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
          const int shifted = v % kWord * l.channels * l.x_plane - v % kWord;
          const T* b = b_lane + row * l.x_pitch + q + v + shifted;
          const uint32_t b0 = *reinterpret_cast<const uint32_t*>(b);
          const uint32_t b1 = *reinterpret_cast<const uint32_t*>(b + 4 * kWord);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) Factor<T>::mma(acc[m][j], a[m], b0, b1);
        }
      }
    }
  }

  // The shares of a tile, added in order.
  __syncthreads();
  auto* sums = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int j = 0; j < kFilter; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums[((m * kFilter + j) * 4 + e) * kGradWThreads + threadIdx.x] = acc[m][j][e];
      }
    }
  }
  __syncthreads();
  const int64_t weights = int64_t(shape.k) * shape.c * kFilter * kFilter;
  float* to = partial + blockIdx.y * (weights + shape.k);
  if (sums_bias && threadIdx.x < 4 * kOutputs) {
    bias_sum += __shfl_xor_sync(~0u, bias_sum, 1);
    bias_sum += __shfl_xor_sync(~0u, bias_sum, 2);
    const int o = threadIdx.x / 4;
    if (threadIdx.x % 4 == 0 && o < outputs) to[weights + o0 + o] = bias_sum;
  }
#pragma unroll 1
  for (int at = threadIdx.x; at < l.tiles * kFilter * 8 * kOutputs; at += kGradWThreads) {
    const int o = at % kOutputs, column = at / kOutputs % 8, j = at / (kOutputs * 8) % kFilter;
    const int of = at / (kOutputs * 8 * kFilter);
    const int c = kSingle ? 0 : c0 + of * 8 + column;
    const int u = kSingle ? j : u0, v = kSingle ? column : j;
    if (o >= outputs || c >= shape.c || v >= kFilter) continue;
    const int e = o / 8 % 2 * 2 + column % 2, from = o % 8 * 4 + column / 2;
    const float* part = sums + ((o / 16 * kFilter + j) * 4 + e) * kGradWThreads + of * 32 + from;
    float sum = 0;
    for (int s = 0; s < shares; ++s) sum += part[s * l.tiles * 32];
    to[int64_t((c * kFilter + u) * kFilter + v) * shape.k + o0 + o] = sum;
  }
#endif
}

// dw[o, tap] and db[o]: the groups' partial sums in order. partial is [group][tap, o | o].
template <typename T>
__global__ void grad_w_sum_kernel(const float* partial, int groups, int taps, int k, LooseOut<T> dw,
                                  LooseOut<T> db) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  const int size = (taps + 1) * k;
  if (at >= (db ? size : taps * k)) return;
  float sum = 0;
#pragma unroll 8
  for (int g = 0; g < groups; ++g) sum += partial[int64_t(g) * size + at];
  const int o = at % k, tap = at / k;
  if (tap < taps) {
    dw.put(int64_t(o) * taps + tap, sum);
  } else {
    db.put(o, sum);
  }
}

template <typename T, int kTiles, int kFilter, bool kSingle>
cudaError_t launch_grad_w(const ImplicitGradWArgs<T>& args, float* partial, int processors,
                          cudaStream_t stream) {
  const ImplicitShape& shape = args.shape;
  const GradWLayout l = grad_w_layout(shape, sizeof(T), processors);
  const auto kernel = conv2d_grad_w_implicit_kernel<T, kTiles, kFilter, kSingle>;
  const auto bytes = int(grad_w_shared(shape, l));
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(l.channel_blocks * l.rows_blocks), unsigned(l.groups),
                  unsigned(l.output_blocks));
  kernel<<<grid, kGradWThreads, bytes, stream>>>(shape, args.x, args.dy, bool(args.db), l, partial);
  const int taps = shape.c * kFilter * kFilter;
  const auto blocks = unsigned(((taps + 1) * shape.k + 255) / 256);
  grad_w_sum_kernel<T>
      <<<blocks, 256, 0, stream>>>(partial, l.groups, taps, shape.k, args.dw, args.db);
  return cudaGetLastError();
}

template <typename T, int kFilter>
cudaError_t launch_grad_w(const ImplicitGradWArgs<T>& args, float* partial, int processors,
                          cudaStream_t stream) {
  if (args.shape.c == 1) {
    return launch_grad_w<T, 2, kFilter, true>(args, partial, processors, stream);
  }
  return grad_w_row_tiles(args.shape) == 2
             ? launch_grad_w<T, 2, kFilter, false>(args, partial, processors, stream)
             : launch_grad_w<T, 4, kFilter, false>(args, partial, processors, stream);
}

template <typename T>
cudaError_t launch_conv2d_grad_w_implicit(const ImplicitGradWArgs<T>& args, void* workspace,
                                          int processors, cudaStream_t stream) {
  auto* partial = static_cast<float*>(workspace);
  switch (args.shape.filter) {
    case 3:
      return launch_grad_w<T, 3>(args, partial, processors, stream);
    case 5:
      return launch_grad_w<T, 5>(args, partial, processors, stream);
    default:
      return launch_grad_w<T, 7>(args, partial, processors, stream);
  }
}

#endif

}  // namespace ridgeline::cuda
