#include <algorithm>
#include <type_traits>

#include "ridgeline/cuda/conv/compact_activation.cuh"
#include "ridgeline/cuda/conv/nan_max.cuh"
#include "ridgeline/cuda/conv/window_store.cuh"
#include "ridgeline/cuda/conv/winograd1d.h"
#include "ridgeline/ops/winograd1d.h"

namespace ridgeline::cuda {
namespace {

constexpr int kEach = 4;       // output channels per thread
constexpr int kRowWords = 64;  // words of a row of filters: the most channels of a block

template <int kFilter>
struct Points {
  static constexpr int kCount = kFilter + kWinograd1dTile - 1, kPairs = kCount / 2 - 1;
};

}  // namespace

Winograd1dShape::Winograd1dShape(const ImplicitShape& shape, size_t shared_memory) {
  constexpr int kStrip = kWinograd1dTiles * kWinograd1dTile;
  points = shape.filter + kWinograd1dTile - 1;
  across = (shape.out_w() + kStrip - 1) / kStrip;
  const int bands = (shape.out_h() + kWinograd1dRows - 1) / kWinograd1dRows;
  items = bands * across;
  groups = outputs = blocks = splits = each = rows = plane = filters = threads = shared = 0;
  const int64_t least = int64_t(points) * bands * across;
  if (least > kWinograd1dThreads) return;
  const int most = std::min(kWinograd1dThreads / int(least), kRowWords / kEach);
  const int all = (shape.k + kEach - 1) / kEach;
  blocks = (all + most - 1) / most;
  groups = (all + blocks - 1) / blocks;
  outputs = groups * kEach;
  splits = std::clamp(kWinograd1dThreads / (points * items * groups), 1, std::min(shape.c, 4));
  each = (shape.c + splits - 1) / splits;
  rows = bands * kWinograd1dRows + shape.filter - 1;
  plane = rows * across * kWinograd1dTiles;
  filters = shape.filter * points * kRowWords;
  threads = points * splits * items * groups;
  const int64_t staged = int64_t(points) * shape.c * plane;
  const int64_t exchanged = int64_t(points) * splits * sums();
  const int64_t bytes = std::max(staged, exchanged) * 4;
  if (bytes <= int64_t(shared_memory)) shared = int(bytes);
}

const char* refuse_conv2d_winograd1d(const ImplicitShape& shape, size_t shared_memory) {
  if (shape.filter != 3 && shape.filter != 5 && shape.filter != 7) {
    return "takes square filters of 3, 5 and 7";
  }
  if (shape.pad < 0 || shape.pad >= shape.filter) return "takes padding smaller than the filter";
  if (shape.out_h() < 1 || shape.out_w() < 1) return "there are no outputs";
  const Winograd1dExtent down{shape.filter, shape.pad, shape.h},
      right{shape.filter, shape.pad, shape.w};
  if (winograd1d_products(shape.c, down, right) < winograd1d_fewest_of_four(shape.filter)) {
    return "too few products in a sum";
  }
  const Winograd1dShape s(shape, shared_memory);
  if (s.threads == 0) return "has fewer threads than strips of pixels";
  return s.shared > 0 ? "" : "an image does not fit in shared memory";
}

size_t conv2d_winograd1d_workspace(const ImplicitShape& shape, size_t shared_memory) {
  const Winograd1dShape s(shape, shared_memory);
  return size_t(s.blocks) * size_t(shape.c) * size_t(s.filters) * 4;
}

namespace {

// packed_filters[block][channel][point][row of the filter][group][4]. Neighbouring threads take
// neighbouring groups and read contiguously. The thread of a group takes channels group, groups +
// group and so on of the block, so that the sums of neighbouring threads are contiguous, too.
// Values past the last channel are zero. A thread packs one row of a filter.
template <int kFilter>
__global__ void __launch_bounds__(256)
    conv2d_winograd1d_pack_filters_kernel(ImplicitShape shape, Winograd1dShape s, const float* w,
                                          bool flipped, float* packed_filters) {
  constexpr int kPoints = Points<kFilter>::kCount, kPairs = Points<kFilter>::kPairs;
  constexpr Winograd1dMatrix<kPairs> matrix;
  const int count = s.blocks * shape.c * kFilter * s.outputs;
  for (int at = blockIdx.x * 256 + threadIdx.x; at < count; at += gridDim.x * 256) {
    const int e = at % kEach, group = at / kEach % s.groups, u = at / s.outputs % kFilter;
    // `channel` counts over all blocks, c over the channels of x.
    const int channel = at / kFilter / s.outputs, c = channel % shape.c;
    const int o = channel / shape.c * s.outputs + e * s.groups + group;
    double row[kFilter] = {};
    if (o < shape.k) {
      const int64_t plane = flipped ? int64_t(c) * shape.k + o : int64_t(o) * shape.c + c;
      const float* from = w + plane * kFilter * kFilter;
#pragma unroll
      for (int v = 0; v < kFilter; ++v) {
        const int tap = u * kFilter + v;
        row[v] = from[flipped ? kFilter * kFilter - 1 - tap : tap];
      }
    }
    constexpr int stride = kRowWords * kFilter;  // between points
    float* to = packed_filters + int64_t(channel) * s.filters + u * kRowWords + group * kEach + e;
    to[0] = float(matrix.zero_scale * row[0]);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const double p = matrix.points[i], y = p * p;
      double even = 0, odd = 0;
#pragma unroll
      for (int k = kFilter - 1; k >= 0; k -= 2) even = even * y + row[k];
#pragma unroll
      for (int k = kFilter - 2; k >= 0; k -= 2) odd = odd * y + row[k];
      to[(1 + 2 * i) * stride] = float(matrix.pair_scale[i] * (even + p * odd));
      to[(2 + 2 * i) * stride] = float(matrix.pair_scale[i] * (even - p * odd));
    }
    to[(kPoints - 1) * stride] = float(row[kFilter - 1]);
  }
}

// Loads the inputs of two tiles of a row, as far as the image reaches. `at` indexes
// [channel][row][strip].
template <int kFilter>
__device__ __forceinline__ void load_strip(
    const ImplicitShape& shape, const Winograd1dShape& s, int across, const float* x, int at,
    float (&a)[kWinograd1dTiles * kWinograd1dTile + kFilter - 1]) {
  const int first = at % across * kWinograd1dTiles * kWinograd1dTile - shape.pad;
  const int y = at / across % s.rows - shape.pad, c = at / across / s.rows;
  const float* row = x + (c * shape.h + y) * shape.w + first;
  const bool there = c < shape.c && y >= 0 && y < shape.h;
#pragma unroll
  for (int k = 0; k < kWinograd1dTiles * kWinograd1dTile + kFilter - 1; ++k) {
    a[k] = there && first + k >= 0 && first + k < shape.w ? row[k] : 0.0f;
  }
}

// Stores their transforms, with points `stride` apart.
template <int kFilter>
__device__ __forceinline__ void put_tiles(
    const float (&a)[kWinograd1dTiles * kWinograd1dTile + kFilter - 1], float2* to, int stride) {
  constexpr int kPairs = Points<kFilter>::kPairs;
  constexpr Winograd1dMatrix<kPairs> matrix;
  // Sums every other value from b on, for both tiles; leading coefficients are 1.
  const auto every_other = [](const float* b, const float* by, int count) {
    float2 sum = {b[2 * count], b[2 * count + kWinograd1dTile]};
#pragma unroll
    for (int k = count - 1; k >= 0; --k) {
      sum.x = fmaf(by[k], b[2 * k], sum.x), sum.y = fmaf(by[k], b[2 * k + kWinograd1dTile], sum.y);
    }
    return sum;
  };
  to[0] = every_other(a, matrix.all, kPairs);
  to[(2 * kPairs + 1) * stride] = every_other(a + 1, matrix.all, kPairs);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const float p = float(matrix.points[i]);
    const float2 even = every_other(a + 2, matrix.others[i], kPairs - 1);
    const float2 odd = every_other(a + 1, matrix.others[i], kPairs - 1);
    to[(1 + 2 * i) * stride] = {fmaf(p, odd.x, even.x), fmaf(p, odd.y, even.y)};
    to[(2 + 2 * i) * stride] = {fmaf(-p, odd.x, even.x), fmaf(-p, odd.y, even.y)};
  }
}

// Transforms the image to [point][channel][row][tile], with several loads in flight.
template <int kFilter>
__device__ void stage_tiles(const ImplicitShape& shape, const Winograd1dShape& s, int across,
                            const float* x, float* to) {
  constexpr int kAhead = 3;
  const int count = shape.c * s.rows * across;
  for (int first = threadIdx.x; first < count; first += kAhead * s.threads) {
    float a[kAhead][kWinograd1dTiles * kWinograd1dTile + kFilter - 1];
#pragma unroll
    for (int e = 0; e < kAhead; ++e) {
      load_strip<kFilter>(shape, s, across, x, first + e * s.threads, a[e]);
    }
#pragma unroll
    for (int e = 0; e < kAhead; ++e) {
      const int at = first + e * s.threads;
      if (at < count) put_tiles<kFilter>(a[e], reinterpret_cast<float2*>(to) + at, count);
    }
  }
}

// Loads a row of a channel's filters.
__device__ __forceinline__ float4 load_row(const float* packed_filters) {
  return __ldg(reinterpret_cast<const float4*>(packed_filters));
}

// Adds one channel to a thread's sums. v: the tiles of its point from its first row on, `pitch`
// apart. The filters of the next channel, at `next`, are loaded while these are multiplied.
template <int kFilter>
__device__ __forceinline__ void add_channel(float (&acc)[kWinograd1dRows][kEach][kWinograd1dTiles],
                                            const float* v, int pitch, float4 (&filters)[kFilter],
                                            const float* next) {
  float4 ahead[kFilter];
#pragma unroll
  for (int in = 0; in < kWinograd1dRows + kFilter - 1; ++in) {
    if (in < kFilter) ahead[in] = load_row(next + in * kRowWords);
    const float2 tiles = *reinterpret_cast<const float2*>(v + in * pitch);
#pragma unroll
    for (int row = 0; row < kFilter; ++row) {
      if (in < row || in - row >= kWinograd1dRows) continue;
      const float taps[kEach] = {filters[row].x, filters[row].y, filters[row].z, filters[row].w};
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        float(&sums)[kWinograd1dTiles] = acc[in - row][e];
        sums[0] = fmaf(taps[e], tiles.x, sums[0]);
        sums[1] = fmaf(taps[e], tiles.y, sums[1]);
      }
    }
  }
#pragma unroll
  for (int row = 0; row < kFilter; ++row) filters[row] = ahead[row];
}

// Computes the four outputs of a tile from its sums at all points, `stride` apart, and the bias.
// The sums of the splits follow each other in memory and are added in order.
template <int kFilter>
__device__ __forceinline__ void tile_outputs(const float* from, int stride, int splits, float bias,
                                             float (&y)[4]) {
  constexpr int kPoints = Points<kFilter>::kCount, kPairs = Points<kFilter>::kPairs;
  constexpr Winograd1dMatrix<kPairs> matrix;
  float sums[kPoints];
#pragma unroll
  for (int p = 0; p < kPoints; ++p) sums[p] = from[p * stride];
#pragma unroll 1
  for (int split = 1; split < splits; ++split) {
#pragma unroll
    for (int p = 0; p < kPoints; ++p) sums[p] += from[(split * kPoints + p) * stride];
  }
  y[0] = sums[0], y[1] = y[2] = 0, y[3] = sums[kPoints - 1];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const float plus = sums[1 + 2 * i], minus = sums[2 + 2 * i];
    const float even = plus + minus, odd = plus - minus, p = float(matrix.points[i]);
    y[0] += even;
    y[1] = fmaf(p, odd, y[1]);
    y[2] = fmaf(p * p, even, y[2]);
    y[3] = fmaf(p * p * p, odd, y[3]);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) y[j] += bias;
}

// A block stores sums [split][point][row, strip][channel][tile] of channels o0 .. o0 + count of an
// image.
struct Winograd1dOutput {
  const ImplicitArgs<float>& args;
  const Winograd1dShape& s;
  const float* sums;
  int64_t image;
  int o0, count;

  __device__ float bias(int o) const { return args.b ? args.b[o0 + o] : 0.0f; }
  __device__ int64_t plane(int o) const { return image * args.shape.k + o0 + o; }
  // The four outputs of a tile, with the bias.
  template <int kFilter>
  __device__ void tile(int row, int strip, int o, int tile, float (&y)[4]) const {
    const float* from =
        sums + (row * s.across + strip) * s.sums_pitch() + o * kWinograd1dTiles + tile;
    tile_outputs<kFilter>(from, s.sums(), s.splits, bias(o), y);
  }
};

template <int kFilter>
__device__ void store_tiles(const Winograd1dOutput& out) {
  const ImplicitShape& shape = out.args.shape;
  const Winograd1dShape& s = out.s;
  const int h = shape.out_h(), w = shape.out_w();
  const int tiles = s.across * kWinograd1dTiles;
  for (int at = threadIdx.x; at < h * tiles * out.count; at += s.threads) {
    const int tile = at % kWinograd1dTiles, strip = at % tiles / kWinograd1dTiles;
    const int row = at / tiles % h, o = at / tiles / h;
    float y[4];
    out.template tile<kFilter>(row, strip, o, tile, y);
    const int first = (strip * kWinograd1dTiles + tile) * kWinograd1dTile;
    float* to = out.args.y + (out.plane(o) * h + row) * w + first;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first + j < w) to[j] = y[j];
    }
  }
}

// Stores the results of a 2 x 2 pool: two windows of a pair of rows.
template <int kFilter>
__device__ void store_tile_windows(const Winograd1dOutput& out, const PooledOutput<float>& pool) {
  const ImplicitShape& shape = out.args.shape;
  const Winograd1dShape& s = out.s;
  const int h = shape.out_h(), w = shape.out_w(), columns = w / 2;
  const int tiles = s.across * kWinograd1dTiles, rows = h / 2;
  for (int at = threadIdx.x; at < rows * tiles * out.count; at += s.threads) {
    const int tile = at % kWinograd1dTiles, strip = at % tiles / kWinograd1dTiles;
    const int row = at / tiles % rows, o = at / tiles / rows;
    // The index of the window.
    const int first = (strip * kWinograd1dTiles + tile) * kWinograd1dTile / 2;
    if (first >= columns) continue;
    float y[2][4];
#pragma unroll
    for (int r = 0; r < 2; ++r) out.template tile<kFilter>(2 * row + r, strip, o, tile, y[r]);
    if (pool.a != nullptr) {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        y[e / 4][e % 4] = compact_activation(pool.activation, y[e / 4][e % 4]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (first + i >= columns) continue;
      const float* upper = y[0] + 2 * i;
      const float* lower = y[1] + 2 * i;
      float most = nan_max(nan_max(upper[0], upper[1]), nan_max(lower[0], lower[1]));
      if (pool.a == nullptr) {
        most = compact_activation(pool.activation, most);
      } else {  // extents are even if this is wanted
        float* a = pool.a + (out.plane(o) * h + 2 * row) * w + 2 * (first + i);
        *reinterpret_cast<float2*>(a) = {upper[0], upper[1]};
        *reinterpret_cast<float2*>(a + w) = {lower[0], lower[1]};
      }
      out.args.y[(out.plane(o) * (h / 2) + row) * columns + first + i] = most;
    }
  }
}

// kAcross: s.across, or 0 for any value. Addresses in the inner loop are constants for the common
// one.
template <int kFilter, int kAcross>
__global__ void __launch_bounds__(kWinograd1dThreads, 1)
    conv2d_winograd1d_kernel(ImplicitArgs<float> args, PooledOutput<float> pool, Winograd1dShape s,
                             const float* packed_filters) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) float memory[];
  const ImplicitShape& shape = args.shape;
  constexpr int kPoints = Points<kFilter>::kCount;
  const int64_t image = blockIdx.x;
  const int o0 = blockIdx.y * s.outputs;
  const int across = kAcross > 0 ? kAcross : s.across;
  int rest = threadIdx.x;
  const int group = rest % s.groups;
  const int item = (rest /= s.groups) % s.items;
  const int split = (rest /= s.items) % s.splits, point = rest / s.splits;
  const int row = item / across * kWinograd1dRows, strip = item % across;
  const int first = split * s.each, last = min(first + s.each, shape.c);
  // The last share may have no channels.
  const float* u = packed_filters +
                   int64_t(blockIdx.y * shape.c + min(first, shape.c - 1)) * s.filters +
                   point * kFilter * kRowWords + group * kEach;
  float4 filters[kFilter];
#pragma unroll
  for (int r = 0; r < kFilter; ++r) filters[r] = load_row(u + r * kRowWords);
  stage_tiles<kFilter>(shape, s, across, args.x + image * shape.c * shape.h * shape.w, memory);
  __syncthreads();

  const int pitch = across * kWinograd1dTiles;
  const float* v =
      memory + (point * shape.c + first) * s.plane + row * pitch + strip * kWinograd1dTiles;
  float acc[kWinograd1dRows][kEach][kWinograd1dTiles] = {};
#pragma unroll 2  // avoids the copies from `ahead`
  for (int c = first; c < last; ++c, v += s.plane) {
    if (c + 1 < last) u += s.filters;
    add_channel<kFilter>(acc, v, pitch, filters, u);
  }
  __syncthreads();  // all threads are done with the memory that the sums overwrite
  float* to = memory + (split * kPoints + point) * s.sums() + group * kWinograd1dTiles;
#pragma unroll
  for (int r = 0; r < kWinograd1dRows; ++r) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      float* place =
          to + ((row + r) * across + strip) * s.sums_pitch() + e * s.groups * kWinograd1dTiles;
      *reinterpret_cast<float2*>(place) = {acc[r][e][0], acc[r][e][1]};
    }
  }
  __syncthreads();
  const Winograd1dOutput out{args, s, memory, image, o0, min(s.outputs, shape.k - o0)};
  if (pool.pooled) {
    store_tile_windows<kFilter>(out, pool);
  } else {
    store_tiles<kFilter>(out);
  }
#endif
}

}  // namespace

cudaError_t launch_conv2d_winograd1d_pack_filters(const ImplicitArgs<float>& args,
                                                  size_t shared_memory, float* packed_filters,
                                                  cudaStream_t stream) {
  const auto kernel = args.shape.filter == 3   ? conv2d_winograd1d_pack_filters_kernel<3>
                      : args.shape.filter == 5 ? conv2d_winograd1d_pack_filters_kernel<5>
                                               : conv2d_winograd1d_pack_filters_kernel<7>;
  kernel<<<64, 256, 0, stream>>>(args.shape, Winograd1dShape(args.shape, shared_memory), args.w,
                                 args.flipped, packed_filters);
  return cudaGetLastError();
}

cudaError_t launch_conv2d_winograd1d(const ImplicitArgs<float>& args,
                                     const PooledOutput<float>& pool, size_t shared_memory,
                                     const float* packed_filters, cudaStream_t stream) {
  const Winograd1dShape s(args.shape, shared_memory);
  const auto of_width = [&](auto across) {
    constexpr int kAcross = decltype(across)::value;
    return args.shape.filter == 3   ? conv2d_winograd1d_kernel<3, kAcross>
           : args.shape.filter == 5 ? conv2d_winograd1d_kernel<5, kAcross>
                                    : conv2d_winograd1d_kernel<7, kAcross>;
  };
  const auto kernel = s.across == 2 ? of_width(std::integral_constant<int, 2>())
                                    : of_width(std::integral_constant<int, 0>());
  const cudaError_t error = allow_shared(kernel, s.shared);
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(args.shape.n), unsigned(s.blocks));
  kernel<<<grid, unsigned(s.threads), size_t(s.shared), stream>>>(args, pool, s, packed_filters);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
