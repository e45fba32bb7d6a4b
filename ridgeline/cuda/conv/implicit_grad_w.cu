// dw as a matrix product over the pixels of the batch: rows are output channels, columns the
// filter's taps. Factors are 32-bit, rounded to tf32.
//
// A block takes a share of the images and, for each, dy and x to shared memory. One row u of the
// filter a block: a tile of eight columns is eight input channels at one tap v. With one input
// channel a tile is the taps v = 0..7 of one row u, and a block does all rows. Blocks leave partial
// sums in memory, added in order by a second kernel.
#include <algorithm>

#include "ridgeline/cuda/conv/implicit.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kBlockChannels = 32;  // input channels of a block: four warps of one tile

// Extents in shared memory, in floats.
struct GradWLayout {
  int columns;                   // of dy, padded with zeros to eights
  int dy_pitch;                  // between channels of dy: a multiple of 4, an odd one in 16 bytes
  int x_rows, x_pitch, x_plane;  // x_plane % 8 == 4: eight channels in different banks
  int channels;                  // of x, in a block
  int channel_blocks, rows_blocks;  // blocks that share the work on an image
  int groups;                       // shares of the images

  __host__ __device__ bool single() const { return channels == 1; }
};

GradWLayout layout_of(const ImplicitShape& shape, int processors) {
  GradWLayout l;
  l.columns = (shape.out_w() + 7) / 8 * 8;
  l.dy_pitch = (shape.out_h() * l.columns + 4) / 8 * 8 + 4;
  l.x_rows = shape.h + 2 * shape.pad;
  l.x_pitch = std::max(shape.w + 2 * shape.pad, l.columns + std::max(shape.filter, 8) - 1);
  l.x_plane = (l.x_rows * l.x_pitch + 3) / 8 * 8 + 4;
  l.channels = shape.c == 1 ? 1 : kBlockChannels;
  l.channel_blocks = (shape.c + l.channels - 1) / l.channels;
  l.rows_blocks = l.single() ? 1 : shape.filter;
  const int blocks = l.channel_blocks * l.rows_blocks;
  l.groups = std::clamp(2 * processors / blocks, 1, shape.n);
  const int each = (shape.n + l.groups - 1) / l.groups;
  l.groups = (shape.n + each - 1) / each;
  return l;
}

int row_tiles(int k) { return k <= 32 ? 2 : 4; }

size_t staging_floats(const ImplicitShape& shape, const GradWLayout& l) {
  return size_t(row_tiles(shape.k)) * 16 * l.dy_pitch + size_t(l.channels) * l.x_plane;
}

// Sums of the warps that share a tile meet here; dw's channels of dy's bias sums behind.
size_t shared_floats(const ImplicitShape& shape, const GradWLayout& l) {
  const size_t exchange = size_t(kWarps) * 32 * row_tiles(shape.k) * shape.filter * 4;
  return std::max(staging_floats(shape, l), exchange) + 64;
}

// `count` numbers in all of dy or x, each to place(at).
template <typename Place>
__device__ void stage(const float* from, int count, float* to, Place place) {
#pragma unroll 8
  for (int at = threadIdx.x; at < count; at += kThreads) {
    to[place(at)] = Factor<float>::round(from[at]);
  }
}

// kRowTiles * 16 output channels; kFilter tiles of columns a warp.
template <int kTiles, int kFilter, bool kSingle>
__global__ void __launch_bounds__(kThreads)
    conv2d_grad_w_implicit_kernel(ImplicitShape shape, const float* x, const float* dy, bool bias,
                                  GradWLayout l, float* partial) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) float floats[];
  const int staged = kTiles * 16 * l.dy_pitch + l.channels * l.x_plane;
  float *dys = floats, *xs = floats + kTiles * 16 * l.dy_pitch;
  const int exchange = kWarps * 32 * kTiles * kFilter * 4;
  float* sums = floats + max(staged, exchange);  // of dy, by output channel
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int out_h = shape.out_h(), out_w = shape.out_w(), pixels = out_h * out_w;
  const int u0 = kSingle ? 0 : blockIdx.x % kFilter;
  const int c0 = kSingle ? 0 : blockIdx.x / kFilter * kBlockChannels;
  const int channels = min(l.channels, shape.c - c0);
  const bool sums_bias = bias && blockIdx.x == 0;
  // Warps that share the columns share the rows of pixels.
  const int tile = kSingle ? 0 : warp % 4, share = kSingle ? warp : warp / 4;
  constexpr int kShares = kSingle ? kWarps : 2;

  for (int at = threadIdx.x; at < staged; at += kThreads) floats[at] = 0.0f;
  if (threadIdx.x < 64) sums[threadIdx.x] = 0.0f;
  float acc[kTiles][kFilter][4] = {};
  const int each = (shape.n + gridDim.y - 1) / gridDim.y;
  const int last = min(shape.n, int(blockIdx.y + 1) * each);
  for (int i = blockIdx.y * each; i < last; ++i) {
    __syncthreads();  // the zeros are there, and all are done with the image before
    stage(dy + int64_t(i) * shape.k * pixels, shape.k * pixels, dys, [&](int at) {
      const int o = at / pixels, pixel = at % pixels;
      return o * l.dy_pitch + pixel / out_w * l.columns + pixel % out_w;
    });
    const int plane = shape.h * shape.w;
    stage(x + (int64_t(i) * shape.c + c0) * plane, channels * plane, xs, [&](int at) {
      const int c = at / plane, pixel = at % plane;
      return c * l.x_plane + (pixel / shape.w + shape.pad) * l.x_pitch + pixel % shape.w +
             shape.pad;
    });
    __syncthreads();
    if (sums_bias) {  // the numbers as they are, not as they were rounded
      for (int o = warp; o < shape.k; o += kWarps) {
        float sum = 0;
        const float* from = dy + (int64_t(i) * shape.k + o) * pixels;
        for (int at = lane; at < pixels; at += 32) sum += from[at];
#pragma unroll
        for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
        if (lane == 0) sums[o] += sum;
      }
    }
    const uint32_t a_row = shared_address(dys) + ((lane % 16) * l.dy_pitch + lane / 16 * 4) * 4;
    const float* b_row =
        kSingle ? xs + lane / 4 + lane % 4 : xs + (tile * 8 + lane / 4) * l.x_plane + lane % 4;
    for (int p = share; p < out_h; p += kShares) {
      for (int q = 0; q < l.columns; q += 8) {
        uint32_t a[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          load_matrices(a[m], a_row + (m * 16 * l.dy_pitch + p * l.columns + q) * 4);
        }
#pragma unroll
        for (int j = 0; j < kFilter; ++j) {
          const float* b = b_row + (kSingle ? (p + j) * l.x_pitch : (p + u0) * l.x_pitch + j) + q;
          const uint32_t b0 = __float_as_uint(b[0]), b1 = __float_as_uint(b[4]);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) Factor<float>::mma(acc[m][j], a[m], b0, b1);
        }
      }
    }
  }

  // The shares of a tile, added in order by the first of its warps.
  __syncthreads();
  float* mine = floats + (warp * 32 + lane);
  if (share > 0) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int j = 0; j < kFilter; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          mine[((m * kFilter + j) * 4 + e) * kThreads] = acc[m][j][e];
        }
      }
    }
  }
  __syncthreads();
  const int64_t weights = int64_t(shape.k) * shape.c * kFilter * kFilter;
  float* to = partial + blockIdx.y * (weights + shape.k);
  if (sums_bias && int(threadIdx.x) < shape.k) to[weights + threadIdx.x] = sums[threadIdx.x];
  if (share > 0) return;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int j = 0; j < kFilter; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float sum = acc[m][j][e];
        for (int s = 1; s < kShares; ++s) {
          const int other = kSingle ? s : s * 4 + tile;
          sum += floats[((m * kFilter + j) * 4 + e) * kThreads + other * 32 + lane];
        }
        const int o = m * 16 + lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
        const int c = kSingle ? 0 : c0 + tile * 8 + column;
        const int u = kSingle ? j : u0, v = kSingle ? column : j;
        if (o < shape.k && c < shape.c && v < kFilter) {
          to[(int64_t((c * kFilter + u) * kFilter + v)) * shape.k + o] = sum;
        }
      }
    }
  }
#endif
}

// dw[o, tap] and db[o]: the groups' partial sums in order. partial is [group][tap, o | o].
__global__ void grad_w_sum_kernel(const float* partial, int groups, int taps, int k,
                                  LooseOut<float> dw, LooseOut<float> db) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  const int size = (taps + 1) * k;
  if (at >= (db ? size : taps * k)) return;
  float sum = 0;
  for (int g = 0; g < groups; ++g) sum += partial[int64_t(g) * size + at];
  const int o = at % k, tap = at / k;
  if (tap < taps) {
    dw.put(int64_t(o) * taps + tap, sum);
  } else {
    db.put(o, sum);
  }
}

template <int kTiles, int kFilter, bool kSingle>
cudaError_t launch(const ImplicitGradWArgs<float>& args, float* partial, int processors,
                   cudaStream_t stream) {
  const GradWLayout l = layout_of(args.shape, processors);
  const auto kernel = conv2d_grad_w_implicit_kernel<kTiles, kFilter, kSingle>;
  const auto bytes = int(shared_floats(args.shape, l) * 4);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(l.channel_blocks * l.rows_blocks), unsigned(l.groups));
  kernel<<<grid, kThreads, bytes, stream>>>(args.shape, args.x, args.dy, bool(args.db), l, partial);
  const int taps = args.shape.c * kFilter * kFilter;
  const auto blocks = unsigned(((taps + 1) * args.shape.k + 255) / 256);
  grad_w_sum_kernel<<<blocks, 256, 0, stream>>>(partial, l.groups, taps, args.shape.k, args.dw,
                                                args.db);
  return cudaGetLastError();
}

template <int kFilter>
cudaError_t launch(const ImplicitGradWArgs<float>& args, float* partial, int processors,
                   cudaStream_t stream) {
  if (args.shape.c == 1) return launch<2, kFilter, true>(args, partial, processors, stream);
  return row_tiles(args.shape.k) == 2
             ? launch<2, kFilter, false>(args, partial, processors, stream)
             : launch<4, kFilter, false>(args, partial, processors, stream);
}

}  // namespace

const char* refuse_implicit_grad_w(const ImplicitShape& shape, size_t width, size_t shared_memory) {
  if (width != 4) return "takes 32-bit factors only";
  if (shape.filter != 3 && shape.filter != 5 && shape.filter != 7) {
    return "takes square filters of 3, 5 and 7";
  }
  if (shape.k > (shape.c == 1 ? 32 : 64)) return "takes up to 64 output channels, 32 of one";
  if (shape.pad < 0 || shape.pad >= shape.filter) return "takes padding smaller than the filter";
  if (shape.out_h() < 1 || shape.out_w() < 1) return "there are no outputs";
  if (shared_floats(shape, layout_of(shape, 1)) * 4 > shared_memory) {
    return "two images do not fit in shared memory";
  }
  return "";
}

size_t implicit_grad_w_workspace(const ImplicitShape& shape, int processors) {
  const size_t weights = size_t(shape.k) * shape.c * shape.filter * shape.filter;
  return size_t(layout_of(shape, processors).groups) * (weights + shape.k) * 4;
}

template <>
cudaError_t launch_conv2d_grad_w_implicit(const ImplicitGradWArgs<float>& args, void* workspace,
                                          int processors, cudaStream_t stream) {
  auto* partial = static_cast<float*>(workspace);
  switch (args.shape.filter) {
    case 3:
      return launch<3>(args, partial, processors, stream);
    case 5:
      return launch<5>(args, partial, processors, stream);
    default:
      return launch<7>(args, partial, processors, stream);
  }
}

}  // namespace ridgeline::cuda
