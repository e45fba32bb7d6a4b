#pragma once

#include "ridgeline/cuda/conv/wgmma_image.cuh"
#include "ridgeline/cuda/conv/window_store.cuh"
#include "ridgeline/cuda/device/bulk_copy.cuh"
#include "ridgeline/cuda/device/wgmma.cuh"

namespace ridgeline::cuda {

constexpr int kConvRows = kConvGroups * 64, kConvPitch = sums_pitch(kConvRows);
constexpr int kGradSums = 2 * kConvThreads;  // values for the reduction of a gradient's sums
constexpr int kConvHead = 1024;              // bytes of barriers and biases before the image

// packed_filters: [block][row of the filter][column][slab][output][channel], with each row of
// channels in wgmma's swizzled layout.
template <typename T>
__global__ void __launch_bounds__(256)
    conv2d_wgmma_pack_filters_kernel(ImplicitShape shape, WgmmaShape layout, const T* w,
                                     bool flipped, std::byte* packed_filters) {
#if __CUDA_ARCH__ >= 900
  constexpr int kCount = ConvChunk<T>::kCount;
  const int taps = shape.filter * shape.filter, chunks = layout.slab / 16;
  const int count = layout.blocks * layout.outputs * layout.slabs * chunks * taps;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) {
    const int tap = i % taps, chunk = i / taps % chunks, slab = i / taps / chunks % layout.slabs;
    const int output = i / taps / chunks / layout.slabs, n = output % layout.outputs;
    const int from = flipped ? taps - 1 - tap : tap;
    const int c0 = (slab * chunks + chunk) * kCount;
    ConvChunk<T> values;
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const int c = c0 + e;
      const bool inside = c < shape.c && output < shape.k;
      const int64_t plane = flipped ? int64_t(c) * shape.k + output : int64_t(output) * shape.c + c;
      values.values[e] = inside ? Factor<T>::round(float(w[plane * taps + from])) : T(0.0f);
    }
    const int64_t tile =
        // Index over the outputs.
        (int64_t(output / layout.outputs) * taps + tap) * layout.slabs + slab;
    std::byte* to = packed_filters + tile * layout.outputs * layout.slab;
    *reinterpret_cast<ConvChunk<T>*>(
        to + slab_place(uint32_t(n * layout.slab + chunk * 16), layout.slab)) = values;
  }
#endif
}

// Writes the sums of a pass to y, pixel by pixel. first: the first output row of the pass.
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

// Stores the results of a 2 x 2 pool over the sums. kKeeps: the input of the pool is stored as
// well.
template <ActivationFn kActivation, bool kKeeps, typename T>
__device__ void store_stream_windows(const BlockOutput<T>& out, const PooledOutput<T>& pool,
                                     const float* sums, int columns, int first, int rows) {
  const int w = out.shape.out_w(), h = out.shape.out_h(), wide = w / 2, high = h / 2;
  const int here = (min(first + rows, h) / 2 - first / 2) * wide;
  struct alignas(2 * sizeof(T)) Two {
    T left, right;
  };
  const auto activation = [&](float x) {
    if constexpr (kActivation == ActivationFn::relu) return x < 0.0f ? 0.0f : x;
    return fast_activation<T>(pool.activation, x);
  };
  for (int at = threadIdx.x % 64; at < here; at += 64) {
    const int row = at / wide * 2, column = at % wide * 2;
    const float* corner = sums + row * columns + column;
#pragma unroll 4
    for (int o = threadIdx.x / 64; o < out.count; o += kConvThreads / 64) {
      const float bias = out.biases[o], *sum = corner + o * kConvPitch;
      T& y = out.y[(out.plane(o) * high + first / 2) * wide + at];
      if constexpr (!kKeeps) {
        const float most =
            nan_max(nan_max(sum[0], sum[1]), nan_max(sum[columns], sum[columns + 1]));
        y = T(activation(most + bias));
      } else {
        const Two upper{T(activation(sum[0] + bias)), T(activation(sum[1] + bias))};
        const Two lower{T(activation(sum[columns] + bias)), T(activation(sum[columns + 1] + bias))};
        T* a = pool.a + (out.plane(o) * h + first + row) * w + column;
        *reinterpret_cast<Two*>(a) = upper;  // extents are even if this is wanted
        *reinterpret_cast<Two*>(a + w) = lower;
        y = T(nan_max(nan_max(float(upper.left), float(upper.right)),
                      nan_max(float(lower.left), float(lower.right))));
      }
    }
  }
}

// A warpgroup's products for one row of the filter: 64 rows of A by kOutputs channels.
template <typename T, int kOutputs, int kSlab>
__device__ void add_filter_row(float (&acc)[kOutputs / 2], const WgmmaShape& layout, int filter,
                               uint32_t image, uint32_t packed_filters, bool accumulate) {
  constexpr uint32_t kGroup = 8 * kSlab, kTile = kOutputs * kSlab;
  wgmma_fence();
#pragma unroll 1
  for (int v = 0; v < filter; ++v) {
#pragma unroll 1
    for (int slab = 0; slab < layout.slabs; ++slab, packed_filters += kTile) {
      const uint32_t a = image + slab * layout.slab_bytes + v * kSlab;
      const uint64_t left = wgmma_descriptor(a, 16, kGroup, kSlab);
      const uint64_t right = wgmma_descriptor(packed_filters, 16, kGroup, kSlab);
#pragma unroll
      for (int at = 0; at < kSlab / 16; at += 2) {  // descriptors count in units of 16 bytes
        wgmma<T, false, false>(acc, left + at, right + at, accumulate);
        accumulate = true;
      }
    }
  }
  wgmma_commit();
}

// Loads image i into shared memory, channels-last.
template <typename T>
__device__ void stage_conv_image(const ImplicitArgs<T>& args, const ConvImage<T>& image,
                                 int64_t i) {
  const ImplicitShape& shape = args.shape;
  if (args.last) {
    constexpr int kChunk = 16 / int(sizeof(T));
    const int channels = (shape.c + kChunk - 1) / kChunk * kChunk;
    image.copy(args.x + i * shape.h * shape.w * channels);
  } else {
    image.transpose(args.x + i * shape.c * shape.h * shape.w);
  }
}

// Stages a gradient that comes through a pool. The gradient in this layout and its sums are
// also written to memory, for the gradient of the filters.
template <typename T>
__device__ void stage_pooled_grad(const PooledGradInput<T>& from, const WgmmaShape& layout,
                                  const ImplicitShape& shape, const ConvImage<T>& image, int64_t i,
                                  std::byte* memory, float* scratch) {
  const int64_t area = shape.h * shape.w, windows = int64_t(shape.h / 2) * (shape.w / 2);
  const T *dy = from.dy.dy + i * shape.c * windows, *a = from.dy.a + i * shape.c * area;
  if (shape.w % 2 == 0) {
    image.template through_pool<true>(dy, a, from.dy.activation);
  } else {
    image.template through_pool<false>(dy, a, from.dy.activation);
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
                        const std::byte* packed_filters) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr bool kGrad = std::is_same_v<From, PooledGradInput<T>>;
  extern __shared__ __align__(1024) std::byte memory[];
  auto* barriers = reinterpret_cast<Mbarrier*>(memory);
  auto* biases = reinterpret_cast<float*>(memory + kConvHead / 2);
  std::byte *image = memory + kConvHead, *ring = image + layout.slabs * layout.slab_bytes;
  const ImplicitShape& shape = args.shape;
  const int64_t i = blockIdx.x;
  const int o0 = blockIdx.y * kOutputs, filter = shape.filter;
  const int all = layout.passes * filter;  // rows of the filter over all passes
  packed_filters += int64_t(blockIdx.y) * filter * layout.stage;
  const auto fetch = [&](int q) {
    if (threadIdx.x != 0) return;
    Mbarrier* barrier = barriers + q % layout.stages;
    mbarrier_arrive_expect(barrier, uint32_t(layout.stage));
    bulk_load(ring + q % layout.stages * layout.stage,
              packed_filters + int64_t(q % filter) * layout.stage, uint32_t(layout.stage), barrier);
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
    const int first = pass * layout.rows;  // the first output row
    float acc[kOutputs / 2];
#pragma unroll 1
    for (int u = 0; u < filter; ++u) {
      const int q = pass * filter + u, stage = q % layout.stages;
      mbarrier_wait(barriers + stage, uint32_t(q / layout.stages & 1));
      const int pixel = (first + u) * layout.columns + group * 64;
      add_filter_row<T, kOutputs, kSlab>(acc, layout, filter, base + pixel * kSlab,
                                         filters + stage * layout.stage, u > 0);
      const int next = q + layout.stages;
      if (next < all && next / filter == pass) {  // the next row of the filter reuses this slot
        wgmma_wait<0>();
        wgmma_keep(acc);
        __syncthreads();
        fetch(next);
      }
    }
    wgmma_wait<0>();
    wgmma_keep(acc);
    __syncthreads();  // all threads are done with the filters, whose memory the sums reuse
#pragma unroll
    for (int j = 0; j < kOutputs / 8; ++j) {
      const float tile[4] = {acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]};
      put_sums(tile, sums + j * 8 * kConvPitch + warp * 16, kConvPitch);
    }
    __syncthreads();
    if constexpr (!kPooled) {
      store_stream(out, sums, layout.columns, first, layout.rows);
    } else if (pool.a == nullptr) {
      store_stream_windows<ActivationFn::none, false>(out, pool, sums, layout.columns, first,
                                                      layout.rows);
    } else if (pool.activation == ActivationFn::relu) {
      store_stream_windows<ActivationFn::relu, true>(out, pool, sums, layout.columns, first,
                                                     layout.rows);
    } else {
      store_stream_windows<ActivationFn::none, true>(out, pool, sums, layout.columns, first,
                                                     layout.rows);
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
                                   const WgmmaShape& layout, const void* packed_filters,
                                   cudaStream_t stream, const From& from = {}) {
  auto kernel = conv2d_wgmma_kernel<T, kPooled, kOutputs, 128, From>;
  if constexpr (std::is_same_v<From, NoInput>) {
    if (layout.slab == 64) kernel = conv2d_wgmma_kernel<T, kPooled, kOutputs, 64, From>;
    if (layout.slab == 32) kernel = conv2d_wgmma_kernel<T, kPooled, kOutputs, 32, From>;
  }
  const cudaError_t error = allow_shared(kernel, layout.shared);
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(args.shape.n), unsigned(layout.blocks));
  kernel<<<grid, kConvThreads, size_t(layout.shared), stream>>>(
      args, pool, from, layout, static_cast<const std::byte*>(packed_filters));
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_conv2d_wgmma_pack_filters(const ImplicitArgs<T>& args, bool pooled,
                                             size_t shared_memory, void* packed_filters,
                                             cudaStream_t stream) {
  const WgmmaShape layout(args.shape, sizeof(T), pooled, shared_memory);
  conv2d_wgmma_pack_filters_kernel<T><<<64, 256, 0, stream>>>(
      args.shape, layout, args.w, args.flipped, static_cast<std::byte*>(packed_filters));
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_conv2d_wgmma(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                                size_t shared_memory, const void* packed_filters,
                                cudaStream_t stream) {
  const WgmmaShape layout(args.shape, sizeof(T), pool.pooled, shared_memory);
  const bool wide = layout.outputs == 64;
  const auto launch =
      pool.pooled
          ? (wide ? launch_conv2d_wgmma_as<T, true, 64> : launch_conv2d_wgmma_as<T, true, 32>)
          : (wide ? launch_conv2d_wgmma_as<T, false, 64> : launch_conv2d_wgmma_as<T, false, 32>);
  return launch(args, pool, layout, packed_filters, stream, {});
}

}  // namespace ridgeline::cuda
