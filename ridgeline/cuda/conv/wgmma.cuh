#pragma once

#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/conv/wgmma.h"
#include "ridgeline/cuda/conv/window_store.cuh"
#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/device/bulk_copy.cuh"
#include "ridgeline/cuda/device/wgmma.cuh"

namespace ridgeline::cuda {

constexpr int kConvGroups = 4, kConvThreads = kConvGroups * 128;  // warpgroups of 64 rows of A
constexpr int kConvRows = kConvGroups * 64, kConvPitch = sums_pitch(kConvRows);
constexpr int kGradSums = 2 * kConvThreads;  // numbers that sums of a gradient are added up in
constexpr int kConvHead = 1024;              // bytes of barriers and biases in front of the image

// Where 16 bytes lie within a slab: wgmma's swizzle of its width.
__host__ __device__ inline uint32_t slab_place(uint32_t bytes, int slab) {
  return bytes ^ ((bytes >> 7 & uint32_t(slab / 16 - 1)) << 4);
}

// Eight halves or four floats.
template <typename T>
struct alignas(16) ConvChunk {
  static constexpr int kCount = 16 / sizeof(T);
  T values[kCount];
};

// words: [block][row of the filter][column][slab][output][channel], each row of channels as wgmma
// wants it.
template <typename T>
__global__ void __launch_bounds__(256)
    conv2d_wgmma_words_kernel(ImplicitShape shape, WgmmaShape layout, const T* w, bool turned,
                              std::byte* words) {
#if __CUDA_ARCH__ >= 900
  constexpr int kCount = ConvChunk<T>::kCount;
  const int taps = shape.filter * shape.filter, chunks = layout.slab / 16;
  const int count = layout.blocks * layout.outputs * layout.slabs * chunks * taps;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) {
    const int tap = i % taps, chunk = i / taps % chunks, slab = i / taps / chunks % layout.slabs;
    const int output = i / taps / chunks / layout.slabs, n = output % layout.outputs;
    const int from = turned ? taps - 1 - tap : tap;
    const int c0 = (slab * chunks + chunk) * kCount;
    ConvChunk<T> values;
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const int c = c0 + e;
      const bool inside = c < shape.c && output < shape.k;
      const int64_t plane = turned ? int64_t(c) * shape.k + output : int64_t(output) * shape.c + c;
      values.values[e] = inside ? Factor<T>::round(float(w[plane * taps + from])) : T(0.0f);
    }
    const int64_t tile =
        (int64_t(output / layout.outputs) * taps + tap) * layout.slabs + slab;  // of the outputs
    std::byte* to = words + tile * layout.outputs * layout.slab;
    *reinterpret_cast<ConvChunk<T>*>(
        to + slab_place(uint32_t(n * layout.slab + chunk * 16), layout.slab)) = values;
  }
#endif
}

// One image in shared memory.
template <typename T>
class ConvImage {
 public:
  static constexpr int kCount = ConvChunk<T>::kCount;

  __device__ ConvImage(const ImplicitShape& shape, const WgmmaShape& layout, std::byte* to)
      : shape_(shape), layout_(layout), to_(to) {}

  __device__ void zero() const {
    for (int at = threadIdx.x * 16; at < layout_.slabs * layout_.slab_bytes;
         at += kConvThreads * 16) {
      *reinterpret_cast<uint4*>(to_ + at) = uint4{0, 0, 0, 0};
    }
    __syncthreads();
  }
  // x[c, h, w] of this image.
  __device__ void turn(const T* x) const {
    constexpr int kAhead = 2;
    const int pixels = shape_.h * shape_.w, items = pixels * ((shape_.c + kCount - 1) / kCount);
    for (int first = threadIdx.x; first < items; first += kAhead * kConvThreads) {
      ConvChunk<T> chunks[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int item = min(first + a * kConvThreads, items - 1), chunk = item / pixels;
        const T* from = x + chunk * kCount * pixels + item % pixels;
        const int last = min(kCount, shape_.c - chunk * kCount) - 1;
#pragma unroll
        for (int e = 0; e < kCount; ++e) chunks[a].values[e] = from[min(e, last) * pixels];
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int item = first + a * kConvThreads;
        if (item >= items) break;
        const int chunk = item / pixels, at = item % pixels, here = shape_.c - chunk * kCount;
#pragma unroll
        for (int e = 0; e < kCount; ++e) {
          T& value = chunks[a].values[e];
          value = e < here ? Factor<T>::round(float(value)) : T(0.0f);
        }
        *reinterpret_cast<ConvChunk<T>*>(place(at / shape_.w, at % shape_.w, chunk)) = chunks[a];
      }
    }
  }
  // x[h, w, channels] of this image: whole chunks, rounded.
  __device__ void copy(const T* x) const {
    const int chunks = (shape_.c + kCount - 1) / kCount, row = shape_.w * chunks;
    for (int at = threadIdx.x; at < shape_.h * row; at += kConvThreads) {
      copy_async_16(place(at / row, at % row / chunks, at % chunks), x + int64_t(at) * kCount);
    }
    copy_async_commit();
    copy_async_wait<0>();
  }
  // What the gradient of a 2 x 2 pool becomes before pool and activation: dy of h/2 x w/2 pixels,
  // the activation's output of h x w. kEven: rows start at even places. Not rounded to tf32:
  // round_and_sum() is to follow.
  template <bool kEven>
  __device__ void through_pool(const T* dy, const T* a, Curve curve) const {
    const int h = shape_.h, w = shape_.w, columns = w / 2, windows = h / 2 * columns;
    const int items = windows * ((shape_.c + kCount - 1) / kCount);
    for (int item = threadIdx.x; item < items; item += kConvThreads) {
      const int chunk = item / windows, window = item % windows, c0 = chunk * kCount;
      const int y = window / columns * 2, x = window % columns * 2, here = shape_.c - c0;
      T quads[kCount][4], slopes[kCount];
#pragma unroll
      for (int e = 0; e < kCount; ++e) {  // any other channel where there is none
        const int c = c0 + min(e, here - 1);
        load_quad<kEven>(a + (c * h + y) * w + x, w, quads[e]);
        slopes[e] = dy[c * windows + window];
      }
      int best[kCount];
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const QuadGrad<T> grad(quads[e], slopes[e], curve);
        best[e] = grad.best;
        slopes[e] = e < here ? grad.slope : T(0.0f);
      }
#pragma unroll
      for (int at = 0; at < 4; ++at) {
        ConvChunk<T> values;
#pragma unroll
        for (int e = 0; e < kCount; ++e) values.values[e] = best[e] == at ? slopes[e] : T(0.0f);
        *reinterpret_cast<ConvChunk<T>*>(place(y + at / 2, x + at % 2, chunk)) = values;
      }
    }
  }
  // Rounds the image's numbers to the products' factors; each channel's sum, of the numbers as they
  // were, by put(channel, sum). Slabs of 128 bytes; scratch: two numbers a thread.
  template <typename Put>
  __device__ void round_and_sum(float* scratch, Put put) const {
    constexpr int kWarps = kConvThreads / 32, kEach = 4 / int(sizeof(T)), kSlab = 32 * kEach;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int slab = 0; slab < layout_.slabs; ++slab) {
      float sum[kEach] = {};
      for (int y = warp; y < shape_.h; y += kWarps) {
        for (int x = 0; x < shape_.w; ++x) {
          auto* values = reinterpret_cast<T*>(place(y, x, slab * 8 + lane / 4)) + lane % 4 * kEach;
#pragma unroll
          for (int e = 0; e < kEach; ++e) sum[e] += float(values[e]);
          if constexpr (sizeof(T) == 4) *values = Factor<T>::round(*values);
        }
      }
#pragma unroll
      for (int e = 0; e < kEach; ++e) scratch[warp * kSlab + lane * kEach + e] = sum[e];
      __syncthreads();
      if (int(threadIdx.x) < kSlab) {
        float all = 0;
        for (int w = 0; w < kWarps; ++w) all += scratch[w * kSlab + threadIdx.x];
        put(slab * kSlab + int(threadIdx.x), all);
      }
      __syncthreads();
    }
  }
  // The image without its padding, [h, w, channels] in whole chunks.
  __device__ void unload(T* to) const {
    const int chunks = (shape_.c + kCount - 1) / kCount, row = shape_.w * chunks;
    for (int at = threadIdx.x; at < shape_.h * row; at += kConvThreads) {
      const auto* from =
          reinterpret_cast<const ConvChunk<T>*>(place(at / row, at % row / chunks, at % chunks));
      reinterpret_cast<ConvChunk<T>*>(to)[at] = *from;
    }
  }

 private:
  __device__ std::byte* place(int y, int x, int chunk) const {
    const int pixel = (y + shape_.pad) * layout_.columns + x + shape_.pad;
    const int chunks = layout_.slab / 16;
    const uint32_t within = uint32_t(pixel * layout_.slab + chunk % chunks * 16);
    return to_ + chunk / chunks * layout_.slab_bytes + slab_place(within, layout_.slab);
  }

  const ImplicitShape& shape_;
  const WgmmaShape& layout_;
  std::byte* to_;
};

// Sums of a pass to y, pixel by pixel. first: its first row of the output.
template <typename T>
__device__ void store_stream(const BlockOutput<T>& out, const float* sums, int columns, int first,
                             int rows) {
  const int w = out.shape.out_w(), h = out.shape.out_h(), here = min(rows, h - first) * w;
  for (int o = threadIdx.x / 32; o < out.count; o += kConvThreads / 32) {
    const float bias = out.biases[o];
    const float* from = sums + o * kConvPitch;
    T* y = out.y + out.plane(o) * h * w + first * w;
    for (int at = threadIdx.x % 32; at < here; at += 32) {
      y[at] = T(from[at / w * columns + at % w] + bias);
    }
  }
}

// The same through a pool of 2 x 2. kKeeps: what the pool reads is wanted as well.
template <Curve kCurve, bool kKeeps, typename T>
__device__ void store_stream_windows(const BlockOutput<T>& out, const PooledOutput<T>& pool,
                                     const float* sums, int columns, int first, int rows) {
  const int w = out.shape.out_w(), h = out.shape.out_h(), wide = w / 2, high = h / 2;
  const int here = (min(first + rows, h) / 2 - first / 2) * wide;
  struct alignas(2 * sizeof(T)) Two {
    T left, right;
  };
  const auto curve = [&](float x) {
    if constexpr (kCurve == Curve::relu) return x < 0.0f ? 0.0f : x;
    return fast_curve<T>(pool.curve, x);
  };
  for (int at = threadIdx.x % 64; at < here; at += 64) {
    const int row = at / wide * 2, column = at % wide * 2;
    const float* corner = sums + row * columns + column;
#pragma unroll 4
    for (int o = threadIdx.x / 64; o < out.count; o += kConvThreads / 64) {
      const float bias = out.biases[o], *sum = corner + o * kConvPitch;
      T& y = out.y[(out.plane(o) * high + first / 2) * wide + at];
      if constexpr (!kKeeps) {
        const float most = larger(larger(sum[0], sum[1]), larger(sum[columns], sum[columns + 1]));
        y = T(curve(most + bias));
      } else {
        const Two upper{T(curve(sum[0] + bias)), T(curve(sum[1] + bias))};
        const Two lower{T(curve(sum[columns] + bias)), T(curve(sum[columns + 1] + bias))};
        T* a = pool.a + (out.plane(o) * h + first + row) * w + column;
        *reinterpret_cast<Two*>(a) = upper;  // even where it is wanted
        *reinterpret_cast<Two*>(a + w) = lower;
        y = T(larger(larger(float(upper.left), float(upper.right)),
                     larger(float(lower.left), float(lower.right))));
      }
    }
  }
}

// A pass of a warpgroup: 64 rows of A by kOutputs channels, over one row of the filter.
template <typename T, int kOutputs, int kSlab>
__device__ void add_filter_row(float (&acc)[kOutputs / 2], const WgmmaShape& layout, int filter,
                               uint32_t image, uint32_t words, bool accumulate) {
  constexpr uint32_t kGroup = 8 * kSlab, kTile = kOutputs * kSlab;
  wgmma_fence();
#pragma unroll 1
  for (int v = 0; v < filter; ++v) {
#pragma unroll 1
    for (int slab = 0; slab < layout.slabs; ++slab, words += kTile) {
      const uint32_t a = image + slab * layout.slab_bytes + v * kSlab;
      const uint64_t left = wgmma_descriptor(a, 16, kGroup, kSlab);
      const uint64_t right = wgmma_descriptor(words, 16, kGroup, kSlab);
#pragma unroll
      for (int at = 0; at < kSlab / 16; at += 2) {  // descriptors count in 16 bytes
        wgmma<T, false, false>(acc, left + at, right + at, accumulate);
        accumulate = true;
      }
    }
  }
  wgmma_commit();
}

// Image i to shared memory, channels last.
template <typename T>
__device__ void stage_conv_image(const ImplicitArgs<T>& args, const ConvImage<T>& image,
                                 int64_t i) {
  const ImplicitShape& shape = args.shape;
  if (args.last) {
    constexpr int kChunk = 16 / int(sizeof(T));
    const int channels = (shape.c + kChunk - 1) / kChunk * kChunk;
    image.copy(args.x + i * shape.h * shape.w * channels);
  } else {
    image.turn(args.x + i * shape.c * shape.h * shape.w);
  }
}

// The same of a gradient that comes through a pool; it goes to memory as well, as it lies here, and
// so do its sums, for the filters' gradient.
template <typename T>
__device__ void stage_pooled_grad(const PooledGradInput<T>& from, const WgmmaShape& layout,
                                  const ImplicitShape& shape, const ConvImage<T>& image, int64_t i,
                                  std::byte* memory, float* scratch) {
  const int64_t area = shape.h * shape.w, windows = int64_t(shape.h / 2) * (shape.w / 2);
  const T *dy = from.dy.dy + i * shape.c * windows, *a = from.dy.a + i * shape.c * area;
  if (shape.w % 2 == 0) {
    image.template through_pool<true>(dy, a, from.dy.curve);
  } else {
    image.template through_pool<false>(dy, a, from.dy.curve);
  }
  const bool leaves = blockIdx.y == 0;
  if constexpr (sizeof(T) == 2) {
    fence_async_proxy();
    __syncthreads();
    if (!leaves) return;
    if (threadIdx.x == 0) {
      const uint32_t bytes = layout.slabs * layout.slab_bytes;
      bulk_store(from.map + i * bytes, memory, bytes);
    }
    image.round_and_sum(scratch, [&](int c, float sum) {
      if (c < shape.c) from.sums[i * shape.c + c] = sum;
    });
  } else {
    __syncthreads();
    const int channels = (shape.c + 3) / 4 * 4;
    image.round_and_sum(scratch, [&](int c, float sum) {
      for (int part = 0; leaves && c < channels && part < from.parts; ++part) {
        from.sums[(i * from.parts + part) * channels + c] = part == 0 ? sum : 0.0f;
      }
    });
    fence_async_proxy();
    if (leaves) image.unload(reinterpret_cast<T*>(from.map) + i * area * channels);
  }
}

template <typename T, bool kPooled, int kOutputs, int kSlab, typename From>
__global__ void __launch_bounds__(kConvThreads, 1)
    conv2d_wgmma_kernel(ImplicitArgs<T> args, PooledOutput<T> pool, From from, WgmmaShape layout,
                        const std::byte* words) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr bool kGrad = std::is_same_v<From, PooledGradInput<T>>;
  extern __shared__ __align__(1024) std::byte memory[];
  auto* barriers = reinterpret_cast<Mbarrier*>(memory);
  auto* biases = reinterpret_cast<float*>(memory + kConvHead / 2);
  std::byte *image = memory + kConvHead, *ring = image + layout.slabs * layout.slab_bytes;
  const ImplicitShape& shape = args.shape;
  const int64_t i = blockIdx.x;
  const int o0 = blockIdx.y * kOutputs, filter = shape.filter;
  const int all = layout.passes * filter;  // rows of the filter, pass after pass
  words += int64_t(blockIdx.y) * filter * layout.stage;
  const auto fetch = [&](int q) {
    if (threadIdx.x != 0) return;
    Mbarrier* barrier = barriers + q % layout.stages;
    mbarrier_arrive_expect(barrier, uint32_t(layout.stage));
    bulk_load(ring + q % layout.stages * layout.stage, words + int64_t(q % filter) * layout.stage,
              uint32_t(layout.stage), barrier);
  };
  if (threadIdx.x == 0) {
    for (int s = 0; s < layout.stages; ++s) mbarrier_init(barriers + s, 1);
    mbarrier_init_fence();
    for (int q = 0; q < min(layout.stages, filter); ++q) fetch(q);
  }
  stage_biases<kOutputs>(args.b, o0, shape.k, biases);
  __shared__ float grad_sums[kGrad ? kGradSums : 1];
  const ConvImage<T> input(shape, layout, image);
  input.zero();
  if constexpr (kGrad) {
    stage_pooled_grad(from, layout, shape, input, i, image, grad_sums);
  } else {
    stage_conv_image(args, input, i);
    fence_async_proxy();
  }
  __syncthreads();

  const int group = threadIdx.x / 128, warp = threadIdx.x / 32;
  const BlockOutput<T> out{shape, biases, args.y, i, o0, min(kOutputs, shape.k - o0)};
  auto* sums = reinterpret_cast<float*>(ring);
  const uint32_t base = smem_address(image), filters = smem_address(ring);
#pragma unroll 1
  for (int pass = 0; pass < layout.passes; ++pass) {
    const int first = pass * layout.rows;  // row of the output
    float acc[kOutputs / 2];
#pragma unroll 1
    for (int u = 0; u < filter; ++u) {
      const int q = pass * filter + u, stage = q % layout.stages;
      mbarrier_wait(barriers + stage, uint32_t(q / layout.stages & 1));
      const int pixel = (first + u) * layout.columns + group * 64;
      add_filter_row<T, kOutputs, kSlab>(acc, layout, filter, base + pixel * kSlab,
                                         filters + stage * layout.stage, u > 0);
      const int next = q + layout.stages;
      if (next < all && next / filter == pass) {  // this row's place is wanted
        wgmma_wait<0>();
        wgmma_keep(acc);
        __syncthreads();
        fetch(next);
      }
    }
    wgmma_wait<0>();
    wgmma_keep(acc);
    __syncthreads();  // all are done with the filters, whose place the sums take
#pragma unroll
    for (int j = 0; j < kOutputs / 8; ++j) {
      const float tile[4] = {acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]};
      put_sums(tile, sums + j * 8 * kConvPitch + warp * 16, kConvPitch);
    }
    __syncthreads();
    if constexpr (!kPooled) {
      store_stream(out, sums, layout.columns, first, layout.rows);
    } else if (pool.a == nullptr) {
      store_stream_windows<Curve::none, false>(out, pool, sums, layout.columns, first, layout.rows);
    } else if (pool.curve == Curve::relu) {
      store_stream_windows<Curve::relu, true>(out, pool, sums, layout.columns, first, layout.rows);
    } else {
      store_stream_windows<Curve::none, true>(out, pool, sums, layout.columns, first, layout.rows);
    }
    if (pass + 1 == layout.passes) break;
    fence_async_proxy();
    __syncthreads();  // the sums have been read
    for (int q = (pass + 1) * filter; q < (pass + 1) * filter + min(layout.stages, filter); ++q) {
      fetch(q);
    }
  }
  if (kGrad && sizeof(T) == 2 && threadIdx.x == 0) bulk_store_wait();
#endif
}

template <typename T, bool kPooled, int kOutputs, typename From = NoInput>
cudaError_t launch_conv2d_wgmma_as(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                                   const WgmmaShape& layout, const void* words, cudaStream_t stream,
                                   const From& from = {}) {
  auto kernel = conv2d_wgmma_kernel<T, kPooled, kOutputs, 128, From>;
  if constexpr (std::is_same_v<From, NoInput>) {
    if (layout.slab == 64) kernel = conv2d_wgmma_kernel<T, kPooled, kOutputs, 64, From>;
    if (layout.slab == 32) kernel = conv2d_wgmma_kernel<T, kPooled, kOutputs, 32, From>;
  }
  const cudaError_t error = allow_shared(kernel, layout.shared);
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(args.shape.n), unsigned(layout.blocks));
  kernel<<<grid, kConvThreads, size_t(layout.shared), stream>>>(
      args, pool, from, layout, static_cast<const std::byte*>(words));
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_conv2d_wgmma_words(const ImplicitArgs<T>& args, bool pooled,
                                      size_t shared_memory, void* words, cudaStream_t stream) {
  const WgmmaShape layout(args.shape, sizeof(T), pooled, shared_memory);
  conv2d_wgmma_words_kernel<T><<<64, 256, 0, stream>>>(args.shape, layout, args.w, args.turned,
                                                       static_cast<std::byte*>(words));
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_conv2d_wgmma(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                                size_t shared_memory, const void* words, cudaStream_t stream) {
  const WgmmaShape layout(args.shape, sizeof(T), pool.pooled, shared_memory);
  const bool wide = layout.outputs == 64;
  const auto launch =
      pool.pooled
          ? (wide ? launch_conv2d_wgmma_as<T, true, 64> : launch_conv2d_wgmma_as<T, true, 32>)
          : (wide ? launch_conv2d_wgmma_as<T, false, 64> : launch_conv2d_wgmma_as<T, false, 32>);
  return launch(args, pool, layout, words, stream, {});
}

}  // namespace ridgeline::cuda
