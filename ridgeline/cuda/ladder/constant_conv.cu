#include <algorithm>
#include <cstdint>

#include "ridgeline/cuda/ladder/constant_conv.h"

namespace ridgeline::cuda {
namespace {

constexpr int kFours = 64 * 1024 / 16;
__constant__ float4 filters[kFours];

constexpr int kMostThreads = 256, kRows = 4;  // kRows: rows of a thread's column
// Values per channel of a tile, of which there are two.
constexpr int kMostTile = 48 * 1024 / 4 / 2;

// A block's outputs: `columns` by kRows * groups, for `channels` channels.
struct Tile {
  int columns, groups;
  int across, down;      // tiles per image
  int input_w, input_h;  // extents of the input under a tile
  int channels;          // output channels per block
  int taps;              // per filter, over all channels

  int threads() const { return (columns * groups + 31) / 32 * 32; }
  // Groups of four values of a block's filters.
  __host__ __device__ int fours() const { return taps * channels / 4; }
};

int ceil_div(int a, int b) { return (a + b - 1) / b; }

// The tile with the fewest threads in total.
Tile tile_of(const ConvGeometry& g) {
  Tile best{};
  int64_t fewest = 0;
  const int rows = ceil_div(g.p, kRows);
  for (int across = ceil_div(g.q, kMostThreads); across <= g.q; ++across) {
    const int columns = ceil_div(g.q, across);
    for (int down = ceil_div(rows, std::max(1, kMostThreads / columns)); down <= rows; ++down) {
      Tile tile{};
      tile.columns = columns, tile.groups = ceil_div(rows, down);
      tile.across = across, tile.down = ceil_div(rows, tile.groups);
      tile.input_w = (columns - 1) * g.right.stride + (g.right.kernel - 1) * g.right.dilation + 1;
      tile.input_h =
          (tile.groups * kRows - 1) * g.down.stride + (g.down.kernel - 1) * g.down.dilation + 1;
      if (int64_t(tile.input_w) * tile.input_h > kMostTile) continue;
      const int64_t threads = int64_t(across) * tile.down * tile.threads();
      if (fewest == 0 || threads < fewest) fewest = threads, best = tile;
      if (tile.groups == 1) break;
    }
    if (columns <= 8) break;
  }
  const int twelve = ceil_div(g.k, 12) * 12, eight = ceil_div(g.k, 8) * 8;
  best.channels = g.k <= 4 ? 4 : twelve < eight ? 12 : 8;
  best.taps = g.c * g.down.kernel * g.right.kernel;
  return best;
}

// The number of blocks of channels whose filters fit in constant memory together.
int blocks_of(const Tile& tile) { return kFours / tile.fours(); }

// to[block][channel of x, column, row][output], the order in which threads read them.
__global__ void arrange_constant_kernel(ConvGeometry g, Tile tile, int first, int count,
                                        const float* w, float* to) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const int o = at % tile.channels, tap = at / tile.channels % tile.taps;
  const int output = first + at / tile.channels / tile.taps * tile.channels + o;
  const int u = tap % g.down.kernel, v = tap / g.down.kernel % g.right.kernel;
  const int c = tap / g.down.kernel / g.right.kernel;
  to[at] = output < g.k ? w[((int64_t(output) * g.c + c) * g.down.kernel + u) * g.right.kernel + v]
                        : 0.0f;
}

template <int kChannels>
struct Sums {
  float sum[kChannels][kRows] = {};

  __device__ void add(int four, const float (&values)[kRows]) {
#pragma unroll
    for (int o = 0; o < kChannels; o += 4) {
      const float4 w = filters[four + o / 4];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sum[o][r] = fmaf(values[r], w.x, sum[o][r]);
        sum[o + 1][r] = fmaf(values[r], w.y, sum[o + 1][r]);
        sum[o + 2][r] = fmaf(values[r], w.z, sum[o + 2][r]);
        sum[o + 3][r] = fmaf(values[r], w.w, sum[o + 3][r]);
      }
    }
  }
};

// Loads one channel of the input under the tile, with zeros outside the image.
__device__ void load_tile(const ConvGeometry& g, const Tile& tile, const float* plane, int top,
                          int left, float* to) {
  for (int y = threadIdx.x / 32; y < tile.input_h; y += blockDim.x / 32) {
    const bool row = top + y >= 0 && top + y < g.h;
    for (int x = threadIdx.x % 32; x < tile.input_w; x += 32) {
      const bool inside = row && left + x >= 0 && left + x < g.w;
      to[y * tile.input_w + x] = inside ? plane[int64_t(top + y) * g.w + left + x] : 0.0f;
    }
  }
}

// kFilter: the side of square filters without stride or dilation, whose columns then stay in
// registers; 0 for all others.
template <int kChannels, int kFilter>
__device__ void add_channel(Sums<kChannels>& sums, const ConvGeometry& g, const Tile& tile,
                            const float* corner, int four) {
  if constexpr (kFilter > 0) {
#pragma unroll 1
    for (int v = 0; v < kFilter; ++v) {
      float column[kFilter + kRows - 1];
#pragma unroll
      for (int y = 0; y < kFilter + kRows - 1; ++y) column[y] = corner[y * tile.input_w + v];
#pragma unroll
      for (int u = 0; u < kFilter; ++u, four += kChannels / 4) {
        float values[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) values[r] = column[u + r];
        sums.add(four, values);
      }
    }
  } else {
    for (int v = 0; v < g.right.kernel; ++v) {
      for (int u = 0; u < g.down.kernel; ++u, four += kChannels / 4) {
        float values[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          values[r] = corner[(r * g.down.stride + u * g.down.dilation) * tile.input_w +
                             v * g.right.dilation];
        }
        sums.add(four, values);
      }
    }
  }
}

// blockIdx.x: image and tile; blockIdx.y: the block of channels, counted from `first`.
template <int kChannels, int kFilter>
__global__ void __launch_bounds__(kMostThreads, 2)
    conv2d_constant_kernel(ConvGeometry g, Tile tile, int first, const float* x, const float* b,
                           float* y) {
  extern __shared__ float memory[];
  const int place = blockIdx.x % (tile.across * tile.down);
  const int64_t i = blockIdx.x / (tile.across * tile.down);
  const int column0 = place % tile.across * tile.columns;
  const int row0 = place / tile.across * tile.groups * kRows;
  const int o0 = first + blockIdx.y * kChannels;
  const int top = row0 * g.down.stride - g.down.pad, left = column0 * g.right.stride - g.right.pad;
  const bool works = int(threadIdx.x) < tile.columns * tile.groups;
  const int column = works ? threadIdx.x % tile.columns : 0;
  const int row = works ? threadIdx.x / tile.columns * kRows : 0;
  const int area = tile.input_w * tile.input_h;
  const int corner = row * g.down.stride * tile.input_w + column * g.right.stride;
  const int channel = tile.taps / g.c * kChannels / 4;  // groups of four per channel of x
  const float* image = x + i * g.c * g.h * g.w;
  Sums<kChannels> sums;
  load_tile(g, tile, image, top, left, memory);
  __syncthreads();
#pragma unroll 1
  for (int c = 0; c < g.c; ++c) {
    if (c + 1 < g.c) {
      load_tile(g, tile, image + int64_t(c + 1) * g.h * g.w, top, left,
                memory + (c + 1) % 2 * area);
    }
    add_channel<kChannels, kFilter>(sums, g, tile, memory + c % 2 * area + corner,
                                    int(blockIdx.y) * tile.fours() + c * channel);
    __syncthreads();
  }
  if (!works || column0 + column >= g.q) return;
#pragma unroll
  for (int o = 0; o < kChannels; ++o) {
    if (o0 + o >= g.k) break;
    const float bias = b != nullptr ? b[o0 + o] : 0.0f;
    float* to = y + ((i * g.k + o0 + o) * g.p + row0 + row) * g.q + column0 + column;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row0 + row + r < g.p) to[int64_t(r) * g.q] = sums.sum[o][r] + bias;
    }
  }
}

using Kernel = void (*)(ConvGeometry, Tile, int, const float*, const float*, float*);

template <int kChannels>
Kernel kernel_of(int filter) {
  switch (filter) {
    case 3:
      return conv2d_constant_kernel<kChannels, 3>;
    case 5:
      return conv2d_constant_kernel<kChannels, 5>;
    case 7:
      return conv2d_constant_kernel<kChannels, 7>;
    default:
      return conv2d_constant_kernel<kChannels, 0>;
  }
}

Kernel kernel_of(const ConvGeometry& g, const Tile& tile) {
  const bool plain = g.down.kernel == g.right.kernel && g.down.stride == 1 && g.right.stride == 1 &&
                     g.down.dilation == 1 && g.right.dilation == 1;
  const int filter = plain ? g.down.kernel : 0;
  return tile.channels == 12  ? kernel_of<12>(filter)
         : tile.channels == 8 ? kernel_of<8>(filter)
                              : kernel_of<4>(filter);
}

}  // namespace

const char* refuse_conv2d_constant(const ConvGeometry& g) {
  if (g.group_in != g.c) return "takes one group";
  const Tile tile = tile_of(g);
  if (tile.columns == 0) return "the pixels under a tile do not fit in shared memory";
  if (blocks_of(tile) == 0) return "the filters of a few outputs do not fit in constant memory";
  return "";
}

cudaError_t launch_conv2d_constant(const ConvGeometry& g, const float* x, const float* w,
                                   const float* b, float* y, cudaStream_t stream) {
  const Tile tile = tile_of(g);
  void* symbol = nullptr;
  const cudaError_t found = cudaGetSymbolAddress(&symbol, filters);
  if (found != cudaSuccess) return found;
  const Kernel kernel = kernel_of(g, tile);
  const int blocks = ceil_div(g.k, tile.channels), most = blocks_of(tile);
  const size_t bytes = size_t(tile.input_w) * size_t(tile.input_h) * 2 * sizeof(float);
  for (int block = 0; block < blocks; block += most) {
    const int here = std::min(most, blocks - block), count = here * tile.fours() * 4;
    arrange_constant_kernel<<<unsigned(ceil_div(count, 256)), 256, 0, stream>>>(
        g, tile, block * tile.channels, count, w, static_cast<float*>(symbol));
    const dim3 grid(unsigned(g.n * tile.across * tile.down), unsigned(here));
    kernel<<<grid, unsigned(tile.threads()), bytes, stream>>>(g, tile, block * tile.channels, x, b,
                                                              y);
  }
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
