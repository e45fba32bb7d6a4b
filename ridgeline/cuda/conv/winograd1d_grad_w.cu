#include <algorithm>

#include "ridgeline/cuda/conv/grad_w_sum.cuh"
#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/window_store.cuh"
#include "ridgeline/cuda/conv/winograd1d_grad_w.h"
#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/ops/winograd1d.h"

namespace ridgeline::cuda {
namespace {

// A block takes 32 outputs (16 for filters of 7) by 32 input channels and a share of the images,
// one band of rows at a time. Two warps take one point. A lane's sums are four outputs by four
// channels by the filter's rows: for a row of a tile it reads four values of x's transform and four
// of dy's, for 80 multiply-adds with a filter of 5.
constexpr int kChannels = 32, kTile = 4;
constexpr int kPointThreads = 64, kSides = kChannels / 4;  // eight by eight threads
constexpr int kCommonTiles = 4, kCommonRows = 14;  // of dy: the common sizes have an unrolled loop
constexpr int kExchangePitch = kChannels + 4;      // between the sums of two outputs

constexpr int outputs_of(int filter) { return filter > 5 ? 16 : 32; }

template <int kFilter>
struct Points {
  static constexpr int kCount = kFilter + kTile - 1, kPairs = kCount / 2 - 1;
  static constexpr int kThreads = kCount * kPointThreads, kWarps = kThreads / 32;
  static constexpr int kOutputs = outputs_of(kFilter), kEach = kOutputs / kSides;
};

struct Layout {
  int tiles;              // per row
  int band, bands;        // rows of dy at a time, bands per image
  int x_plane, dy_plane;  // words of a channel's untransformed rows; odd, to use different banks
  int x_tiles, dy_tiles;  // transformed values per point
  int shares;             // shares of the bands of all images
  int shared;             // bytes; 0 if it does not fit

  Layout(const ImplicitShape& shape, int sms, size_t shared_memory) {
    const int points = shape.filter + kTile - 1, outputs = outputs_of(shape.filter);
    const int most = int(std::min<size_t>(shared_memory, 1 << 19));
    tiles = (shape.out_w() + kTile - 1) / kTile;
    shared = 0;
    const int most_rows = most / 4 / outputs;  // no larger band fits
    for (band = std::min(shape.out_h(), most_rows); band > 0 && shared == 0; --band) {
      const int64_t rows = band + shape.filter - 1;
      const int64_t x_words = (rows * shape.w) | 1, dy_words = (int64_t(band) * shape.out_w()) | 1;
      const int64_t x_points = rows * tiles * kChannels;
      const int64_t dy_points = int64_t(band) * tiles * outputs;
      const int64_t staged =
          points * (x_points + dy_points) + kChannels * x_words + outputs * dy_words;
      const int64_t exchange = int64_t(points) * shape.filter * outputs * kExchangePitch;
      const int64_t words = std::max(staged, exchange);
      if (words * 4 > most) continue;
      x_plane = int(x_words), dy_plane = int(dy_words);
      x_tiles = int(x_points), dy_tiles = int(dy_points);
      shared = int(words) * 4;
    }
    ++band;
    bands = (shape.out_h() + band - 1) / band;
    const int blocks = (shape.k + outputs - 1) / outputs * ((shape.c + kChannels - 1) / kChannels);
    shares = std::clamp(sms / blocks, 1, shape.n * bands);
  }
};

// Copies the untransformed rows of a band asynchronously: `count` contiguous values of each plane.
template <int kThreads>
__device__ inline void fetch_planes(const float* from, int64_t from_plane, int planes, int count,
                                    float* to, int to_plane) {
  const int lane = threadIdx.x % 32;
  for (int plane = threadIdx.x / 32; plane < planes; plane += kThreads / 32) {
    for (int at = lane; at < count; at += 32) {
      copy_async_4(to + plane * to_plane + at, from + plane * from_plane + at);
    }
  }
}

// A band of an image: its first row of dy, and the rows of x that exist.
struct Band {
  int64_t image;
  int y, rows;        // of dy
  int x_low, x_high;  // rows of x, the first as row x_low - (y - pad) of the band

  __device__ Band(const ImplicitShape& s, const Layout& l, int unit)
      : image(unit / l.bands), y(unit % l.bands * l.band), rows(min(l.band, s.out_h() - y)) {
    x_low = max(0, y - s.pad), x_high = min(s.h, y - s.pad + rows + s.filter - 1);
  }
};

// The parts of shared memory.
struct Stage {
  float *x, *dy;              // untransformed: [channel][row, column]
  float *x_tiles, *dy_tiles;  // transformed: [point][row, tile][channel]

  __device__ Stage(const Layout& l, float* memory, int points)
      : x_tiles(memory), dy_tiles(memory + points * l.x_tiles) {
    x = dy_tiles + points * l.dy_tiles, dy = x + kChannels * l.x_plane;
  }
};

// Transforms x: a warp takes a tile, and a lane a channel.
template <int kFilter>
__device__ void transform_x(const ImplicitShape& s, const Layout& l, int tiles, const Band& band,
                            int channels, const Stage& stage) {
  using P = Points<kFilter>;
  constexpr Winograd1dMatrix<P::kPairs> matrix;
  const int lane = threadIdx.x % 32;
  for (int at = threadIdx.x / 32; at < (band.rows + kFilter - 1) * tiles; at += P::kWarps) {
    const int row = at / tiles, tile = at % tiles, y = band.y - s.pad + row;
    const bool there = y >= band.x_low && y < band.x_high && lane < channels;
    const float* from = stage.x + lane * l.x_plane + (y - band.x_low) * s.w;
    float a[P::kCount];
#pragma unroll
    for (int k = 0; k < P::kCount; ++k) {
      const int column = tile * kTile - s.pad + k;
      a[k] = there && column >= 0 && column < s.w ? from[column] : 0.0f;
    }
    float* to = stage.x_tiles + at * kChannels + lane;
    float zero = a[2 * P::kPairs], infinity = a[2 * P::kPairs + 1];  // leading coefficients: 1
#pragma unroll
    for (int k = P::kPairs - 1; k >= 0; --k) {
      zero = fmaf(matrix.all[k], a[2 * k], zero);
      infinity = fmaf(matrix.all[k], a[2 * k + 1], infinity);
    }
    to[0] = zero, to[(P::kCount - 1) * l.x_tiles] = infinity;
#pragma unroll
    for (int i = 0; i < P::kPairs; ++i) {
      float even = a[2 * P::kPairs], odd = a[2 * P::kPairs - 1];
#pragma unroll
      for (int k = P::kPairs - 2; k >= 0; --k) {
        even = fmaf(matrix.others[i][k], a[2 * k + 2], even);
        odd = fmaf(matrix.others[i][k], a[2 * k + 1], odd);
      }
      const float p = float(matrix.points[i]);
      to[(1 + 2 * i) * l.x_tiles] = fmaf(p, odd, even);
      to[(2 + 2 * i) * l.x_tiles] = fmaf(-p, odd, even);
    }
  }
}

// Transforms dy: a thread takes one output of a tile. The scales of the points are applied to the
// sums. Returns the lane's share of the sum of dy.
template <int kFilter>
__device__ float transform_dy(const ImplicitShape& s, const Layout& l, int tiles, const Band& band,
                              int outputs, const Stage& stage) {
  using P = Points<kFilter>;
  constexpr Winograd1dMatrix<P::kPairs> matrix;
  constexpr int kOutputs = P::kOutputs;
  const int o = threadIdx.x % kOutputs, out_w = s.out_w();
  float sum = 0;
  for (int at = threadIdx.x / kOutputs; at < band.rows * tiles; at += P::kThreads / kOutputs) {
    const int first = at % tiles * kTile;
    const float* from = stage.dy + o * l.dy_plane + at / tiles * out_w + first;
    float a[kTile];
#pragma unroll
    for (int k = 0; k < kTile; ++k) {
      a[k] = o < outputs && first + k < out_w ? from[k] : 0.0f;
      sum += a[k];
    }
    float* to = stage.dy_tiles + at * kOutputs + o;
    to[0] = a[0], to[(P::kCount - 1) * l.dy_tiles] = a[kTile - 1];
#pragma unroll
    for (int i = 0; i < P::kPairs; ++i) {
      const float p = float(matrix.points[i]);
      const float even = fmaf(p * p, a[2], a[0]), odd = fmaf(p * p, a[3], a[1]);
      to[(1 + 2 * i) * l.dy_tiles] = fmaf(p, odd, even);
      to[(2 + 2 * i) * l.dy_tiles] = fmaf(-p, odd, even);
    }
  }
  return sum;
}

// The values of dy of neighbouring outputs.
template <int kEach>
struct alignas(4 * kEach) Slopes {
  float values[kEach];
};

template <int kEach>
__device__ __forceinline__ void add_products(float (&acc)[kEach][4], const Slopes<kEach>& by,
                                             const float4& pixels) {
#pragma unroll
  for (int o = 0; o < kEach; ++o) {
    acc[o][0] = fmaf(by.values[o], pixels.x, acc[o][0]);
    acc[o][1] = fmaf(by.values[o], pixels.y, acc[o][1]);
    acc[o][2] = fmaf(by.values[o], pixels.z, acc[o][2]);
    acc[o][3] = fmaf(by.values[o], pixels.w, acc[o][3]);
  }
}

// A lane's share of kRows rows of a column of tiles, unrolled. A row of x is multiplied with as
// many rows of dy as the filter has rows; each row of dy is kept until its last use.
template <int kFilter, int kRows, int kEach>
__device__ __forceinline__ void add_rows(float (&acc)[kFilter][kEach][4], const float* x,
                                         const float* dy, int tiles) {
  Slopes<kEach> by[kRows];
#pragma unroll
  for (int in = 0; in < kRows + kFilter - 1; ++in) {
    const float4 pixels = *reinterpret_cast<const float4*>(x + in * tiles * kChannels);
    if (in < kRows) {
      by[in] = *reinterpret_cast<const Slopes<kEach>*>(dy + in * tiles * kEach * kSides);
    }
#pragma unroll
    for (int u = 0; u < kFilter; ++u) {
      if (in >= u && in - u < kRows) add_products(acc[u], by[in - u], pixels);
    }
  }
}

// Adds the products of any number of rows; here each row of x is kept until its last use.
template <int kFilter, int kEach>
__device__ __forceinline__ void add_any_rows(float (&acc)[kFilter][kEach][4], const float* x,
                                             const float* dy, int rows, int tiles) {
  float4 meets[kFilter];  // rows of x: row y is in y % kFilter
#pragma unroll
  for (int row = 0; row < kFilter - 1; ++row) {
    meets[row] = *reinterpret_cast<const float4*>(x + row * tiles * kChannels);
  }
  x += (kFilter - 1) * tiles * kChannels;
#pragma unroll 1
  for (int first = 0; first < rows; first += kFilter) {
#pragma unroll
    for (int j = 0; j < kFilter; ++j) {
      if (first + j >= rows) break;
      meets[(j + kFilter - 1) % kFilter] = *reinterpret_cast<const float4*>(x);
      const auto by = *reinterpret_cast<const Slopes<kEach>*>(dy);
      x += tiles * kChannels, dy += tiles * kEach * kSides;
#pragma unroll
      for (int u = 0; u < kFilter; ++u) add_products(acc[u], by, meets[(j + u) % kFilter]);
    }
  }
}

// Computes the taps of a row from its sums at all points, `stride` apart.
template <int kFilter>
__device__ inline void row_taps(const float* sums, int stride, float (&taps)[kFilter]) {
  using P = Points<kFilter>;
  constexpr Winograd1dMatrix<P::kPairs> matrix;
#pragma unroll
  for (int j = 0; j < kFilter; ++j) taps[j] = 0;
  taps[0] = float(matrix.zero_scale) * sums[0];
  taps[kFilter - 1] = sums[(P::kCount - 1) * stride];
#pragma unroll
  for (int i = 0; i < P::kPairs; ++i) {
    const float plus = sums[(1 + 2 * i) * stride], minus = sums[(2 + 2 * i) * stride];
    const float even = plus + minus, odd = plus - minus;
    double power = matrix.pair_scale[i];
#pragma unroll
    for (int j = 0; j < kFilter; ++j, power *= matrix.points[i]) {
      taps[j] = fmaf(float(power), j % 2 == 0 ? even : odd, taps[j]);
    }
  }
}

// kTiles: l.tiles, or 0 for any value. Addresses in the inner loop are constants for the common
// one.
template <int kFilter, int kTiles>
__global__ void __launch_bounds__(Points<kFilter>::kThreads, 1)
    conv2d_grad_w_winograd1d_kernel(GradWArgs args, Layout l, float* partial, float* bias) {
#if __CUDA_ARCH__ >= 800
  using P = Points<kFilter>;
  constexpr int kOutputs = P::kOutputs, kEach = P::kEach;
  extern __shared__ __align__(16) float memory[];
  const ImplicitShape& s = args.shape;
  const Stage stage(l, memory, P::kCount);
  const int tiles = kTiles > 0 ? kTiles : l.tiles;
  const int o0 = int(blockIdx.y) * kOutputs, c0 = int(blockIdx.z) * kChannels;
  const int outputs = min(kOutputs, s.k - o0), channels = min(kChannels, s.c - c0);
  const int64_t units = int64_t(s.n) * l.bands;
  const int begin = int(units * blockIdx.x / gridDim.x);
  const int end = int(units * (blockIdx.x + 1) / gridDim.x);
  const auto fetch = [&](int unit) {
    const Band band(s, l, unit);
    const int area = s.h * s.w, out_area = s.out_h() * s.out_w();
    fetch_planes<P::kThreads>(args.x + (band.image * s.c + c0) * area + band.x_low * s.w, area,
                              channels, (band.x_high - band.x_low) * s.w, stage.x, l.x_plane);
    fetch_planes<P::kThreads>(args.dy + (band.image * s.k + o0) * out_area + band.y * s.out_w(),
                              out_area, outputs, band.rows * s.out_w(), stage.dy, l.dy_plane);
    copy_async_commit();
  };
  const int point = threadIdx.x / kPointThreads, thread = threadIdx.x % kPointThreads;
  const int first_c = thread % kSides * 4, first_o = thread / kSides * kEach;
  const float* x = stage.x_tiles + point * l.x_tiles + first_c;
  const float* dy = stage.dy_tiles + point * l.dy_tiles + first_o;
  float acc[kFilter][kEach][4] = {}, bias_sum = 0;
  fetch(begin);
#pragma unroll 1
  for (int unit = begin; unit < end; ++unit) {
    const Band band(s, l, unit);
    copy_async_wait<0>();
    // The band has arrived, and all threads are done with the previous band's tiles.
    __syncthreads();
    transform_x<kFilter>(s, l, tiles, band, channels, stage);
    bias_sum += transform_dy<kFilter>(s, l, tiles, band, outputs, stage);
    __syncthreads();
    if (unit + 1 < end) fetch(unit + 1);
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const float *x_column = x + tile * kChannels, *dy_column = dy + tile * kOutputs;
      if (kTiles > 0 && band.rows == kCommonRows) {
        add_rows<kFilter, kCommonRows>(acc, x_column, dy_column, tiles);
      } else {
        add_any_rows(acc, x_column, dy_column, band.rows, tiles);
      }
    }
  }
  __syncthreads();

  // Stores the points' sums: [point][row of the filter][output][channel].
  float* to = memory + (point * kFilter * kOutputs + first_o) * kExchangePitch + first_c;
#pragma unroll
  for (int e = 0; e < kFilter * kEach; ++e) {
    const float(&sums)[4] = acc[e / kEach][e % kEach];
    *reinterpret_cast<float4*>(to + (e / kEach * kOutputs + e % kEach) * kExchangePitch) = {
        sums[0], sums[1], sums[2], sums[3]};
  }
  __syncthreads();
  partial += int64_t(blockIdx.x) * s.c * kFilter * kFilter * s.k;
  for (int at = threadIdx.x; at < kOutputs * kChannels; at += P::kThreads) {
    const int o = at % kOutputs, c = at / kOutputs;
    if (o >= outputs || c >= channels) continue;
    float* to = partial + int64_t(c0 + c) * kFilter * kFilter * s.k + o0 + o;
#pragma unroll
    for (int u = 0; u < kFilter; ++u) {
      float taps[kFilter];
      row_taps<kFilter>(memory + (u * kOutputs + o) * kExchangePitch + c,
                        kFilter * kOutputs * kExchangePitch, taps);
#pragma unroll
      for (int v = 0; v < kFilter; ++v) to[(u * kFilter + v) * s.k] = taps[v];
    }
  }
  if (blockIdx.z != 0 || args.db == nullptr) return;
  __syncthreads();
  memory[threadIdx.x] = bias_sum;
  __syncthreads();
  if (int(threadIdx.x) >= outputs) return;
  float sum = 0;
  for (int at = threadIdx.x; at < P::kThreads; at += kOutputs) sum += memory[at];
  bias[int64_t(blockIdx.x) * s.k + o0 + threadIdx.x] = sum;
#endif
}

template <int kFilter>
cudaError_t launch(const GradWArgs& args, const Layout& l, float* partial, cudaStream_t stream) {
  const ImplicitShape& s = args.shape;
  const int taps = s.c * kFilter * kFilter;
  float* bias = partial + int64_t(l.shares) * taps * s.k;
  const auto kernel = l.tiles == kCommonTiles
                          ? conv2d_grad_w_winograd1d_kernel<kFilter, kCommonTiles>
                          : conv2d_grad_w_winograd1d_kernel<kFilter, 0>;
  const cudaError_t error = allow_shared(kernel, l.shared);
  if (error != cudaSuccess) return error;
  constexpr int kOutputs = Points<kFilter>::kOutputs;
  const dim3 grid(unsigned(l.shares), unsigned((s.k + kOutputs - 1) / kOutputs),
                  unsigned((s.c + kChannels - 1) / kChannels));
  kernel<<<grid, Points<kFilter>::kThreads, size_t(l.shared), stream>>>(args, l, partial, bias);
  return launch_grad_w_sum<float>({partial, l.shares, int64_t(taps) * s.k}, {bias, l.shares, s.k},
                                  taps, s.k, {args.dw}, {args.db}, stream);
}

}  // namespace

const char* refuse_winograd1d_grad_w(const ImplicitShape& shape, size_t shared_memory) {
  if (shape.filter != 3 && shape.filter != 5 && shape.filter != 7) {
    return "takes square filters of 3, 5 and 7";
  }
  if (shape.pad < 0 || shape.pad >= shape.filter) return "takes padding smaller than the filter";
  if (shape.out_h() < 1 || shape.out_w() < 1) return "there are no outputs";
  // A tap at the edge covers the fewest rows and columns.
  const int64_t rows = std::min(shape.out_h(), shape.h), columns = std::min(shape.out_w(), shape.w);
  const int64_t least =
      std::max<int64_t>(rows - shape.pad, 0) * std::max<int64_t>(columns - shape.pad, 0) * shape.n;
  if (least < winograd1d_fewest_of_four(shape.filter)) return "too few products in a sum";
  if (int64_t(shape.out_w()) > (1 << 14) || int64_t(shape.w) > (1 << 14)) {
    return "a row does not fit in shared memory";
  }
  return Layout(shape, 1, shared_memory).shared > 0 ? "" : "a row does not fit in shared memory";
}

size_t winograd1d_grad_w_workspace(const ImplicitShape& shape, int sms, size_t shared_memory) {
  const size_t taps = size_t(shape.c) * shape.filter * shape.filter;
  return size_t(Layout(shape, sms, shared_memory).shares) * (taps + 1) * shape.k * 4;
}

cudaError_t launch_conv2d_grad_w_winograd1d(const GradWArgs& args, void* workspace, int sms,
                                            size_t shared_memory, cudaStream_t stream) {
  const Layout l(args.shape, sms, shared_memory);
  auto* partial = static_cast<float*>(workspace);
  switch (args.shape.filter) {
    case 3:
      return launch<3>(args, l, partial, stream);
    case 5:
      return launch<5>(args, l, partial, stream);
    default:
      return launch<7>(args, l, partial, stream);
  }
}

}  // namespace ridgeline::cuda
