#pragma once

// dw as a matrix product over the pixels of the batch, from the maps of grad_maps.cuh. Rows are
// output channels; columns are input channels at a tap, where a tap only shifts the address in x. k
// runs along the pixels, across the ends of rows. Groups of images leave partial sums in memory,
// and a last launch adds them in order (grad_w_sum.cuh).

#include "ridgeline/cuda/conv/grad_maps.h"
#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/device/async_copy.cuh"

namespace ridgeline::cuda {

// Loads the factors of one step of k from shared memory. dz points to the warp's first output
// channel at the step's first pixel, x to the tile's first channel, and `places` to the byte
// offsets of the step's pixels in x.
template <typename T>
struct GradWFactors {  // halves: ldmatrix transposes the pixel-major layout
  static constexpr int kStep = 16;

  template <int kTiles>
  static __device__ void outputs(uint32_t (&a)[kTiles][4], uint32_t dz, int pitch) {
    const int lane = threadIdx.x % 32;
    const uint32_t mine = dz + (lane % 8 + lane / 16 * 8) * pitch + (lane / 8 & 1) * 16;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(a[m][0]), "=r"(a[m][1]), "=r"(a[m][2]), "=r"(a[m][3])
                   : "r"(mine + m * 32));
    }
  }
  template <int kFilter>
  static __device__ void inputs(uint32_t (&b)[kFilter][2], uint32_t x, const int* places,
                                int pitch) {
    const int lane = threadIdx.x % 32;
    const uint32_t mine = x + places[lane % 16];
#pragma unroll
    for (int v = 0; v + 1 < kFilter; v += 2) {  // two taps per load
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(b[v][0]), "=r"(b[v][1]), "=r"(b[v + 1][0]), "=r"(b[v + 1][1])
                   : "r"(mine + (v + lane / 16) * pitch));
    }
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(b[kFilter - 1][0]), "=r"(b[kFilter - 1][1])
                 : "r"(mine + (kFilter - 1) * pitch));
  }
};

template <>
struct GradWFactors<float> {
  static constexpr int kStep = 8;

  static __device__ uint32_t load(uint32_t address) {
    uint32_t value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
    return value;
  }
  template <int kTiles>
  static __device__ void outputs(uint32_t (&a)[kTiles][4], uint32_t dz, int pitch) {
    const int lane = threadIdx.x % 32;
    const uint32_t mine = dz + lane % 4 * pitch + lane / 4 * 4;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        a[m][e] = load(mine + e / 2 * 4 * pitch + m * 64 + e % 2 * 32);
      }
    }
  }
  template <int kFilter>
  static __device__ void inputs(uint32_t (&b)[kFilter][2], uint32_t x, const int* places,
                                int pitch) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t mine = x + places[half * 4 + lane % 4] + lane / 4 * 4;
#pragma unroll
      for (int v = 0; v < kFilter; ++v) b[v][half] = load(mine + v * pitch);
    }
  }
};

// Computes the groups' sums, [group][tap, o].
template <typename T, int kTiles, int kFilter>
__global__ void __launch_bounds__(kGradWThreads, 1)
    conv2d_grad_w_maps_kernel(ImplicitShape shape, const T* dz, const T* x, GradWShares s,
                              float* partial) {
#if __CUDA_ARCH__ >= 800
  using Factors = GradWFactors<T>;
  extern __shared__ __align__(128) std::byte memory[];
  constexpr int kSize = int(sizeof(T)), kCount = 16 / kSize, kOutputs = kTiles * 16;
  constexpr int kStep = Factors::kStep;
  constexpr int kDzPitch = grad_w_pitch(kOutputs, kSize);
  constexpr int kXPitch = grad_w_pitch(kGradWChannels, kSize);
  constexpr int kDzChunks = kOutputs / kCount, kXChunks = kGradWChannels / kCount;
  const GradMaps maps(shape, kSize);
  const int out_w = shape.out_w(), out_h = shape.out_h();
  const int u = blockIdx.x % kFilter, c0 = blockIdx.x / kFilter * kGradWChannels;
  const int group = blockIdx.z / s.output_blocks, o0 = blockIdx.z % s.output_blocks * kOutputs;
  auto* places = reinterpret_cast<int*>(memory);
  std::byte* stages = memory + s.table;
  const int x_at = (s.pixels * kDzPitch + 127) / 128 * 128;  // the offset of x in a stage

  for (int at = threadIdx.x; at < s.pixels; at += kGradWThreads) {
    // Pixels past the last are multiplied by zeros of dz.
    const int pixel = min(at, s.band * out_w - 1);
    places[at] = (pixel / out_w * maps.columns + pixel % out_w * shape.stride) * kXPitch;
  }
  const int dz_chunks = min(kDzChunks, (maps.group_k - o0) / kCount);
  const int x_chunks = min(kXChunks, (maps.group_c - c0) / kCount);
  if (dz_chunks < kDzChunks || x_chunks < kXChunks) {  // channels past the last stay zero
    for (int at = threadIdx.x * 16; at < 2 * s.stage; at += kGradWThreads * 16) {
      *reinterpret_cast<uint4*>(stages + at) = uint4{0, 0, 0, 0};
    }
    __syncthreads();
  }

  const int each = (shape.n + int(gridDim.y) - 1) / int(gridDim.y);
  const int first = int(blockIdx.y) * each, last = min(shape.n, first + each);
  const int slabs = (last - first) * s.bands;
  const auto rows_of = [&](int slab) { return min(s.band, out_h - slab % s.bands * s.band); };
  const auto fetch = [&](int slab) {  // commits a group of copies even past the last slab
    if (slab < slabs) {
      std::byte *dzs = stages + slab % 2 * s.stage, *xs = dzs + x_at;
      const int64_t image = first + slab / s.bands;
      const int p0 = slab % s.bands * s.band, rows = rows_of(slab);
      const T* from = dz + (image * out_h + p0) * out_w * maps.k + group * maps.group_k + o0;
      for (int at = threadIdx.x; at < s.pixels * kDzChunks; at += kGradWThreads) {
        const int pixel = at / kDzChunks, chunk = at % kDzChunks;
        std::byte* to = dzs + pixel * kDzPitch + chunk * 16;
        if (pixel >= rows * out_w) {
          *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
        } else if (chunk < dz_chunks) {
          copy_async_16(to, from + int64_t(pixel) * maps.k + chunk * kCount);
        }
      }
      from = x + (image * maps.rows + p0 * shape.stride + u) * maps.columns * maps.c +
             group * maps.group_c + c0;
      for (int at = threadIdx.x; at < s.band * maps.columns * kXChunks; at += kGradWThreads) {
        const int pixel = at / kXChunks, chunk = at % kXChunks;
        std::byte* to = xs + pixel * kXPitch + chunk * 16;
        if (pixel >= rows * maps.columns) {  // multiplied by zeros of dz, so it must be finite
          *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
        } else if (chunk < x_chunks) {
          const int skipped = shape.stride > 1 ? pixel / maps.columns * (shape.stride - 1) : 0;
          copy_async_16(to,
                        from + int64_t(pixel + skipped * maps.columns) * maps.c + chunk * kCount);
        }
      }
    }
    copy_async_commit();
  };

  const int warp = threadIdx.x / 32;
  const int tile = warp % s.tiles, share = warp / s.tiles, shares = kGradWWarps / s.tiles;
  float acc[kTiles][kFilter][4] = {};
  fetch(0);
#pragma unroll 1
  for (int slab = 0; slab < slabs; ++slab) {
    fetch(slab + 1);
    copy_async_wait<1>();
    __syncthreads();
    const uint32_t dzs = shared_address(stages + slab % 2 * s.stage);
    const uint32_t xs = dzs + x_at + tile * 8 * kSize;
    const int steps = (rows_of(slab) * out_w + kStep - 1) / kStep;
    uint32_t a[2][kTiles][4], b[2][kFilter][2];  // for this step of k and the next
    const auto load = [&](int step, int to) {
      const int at = min(step, steps - 1) * kStep;
      Factors::inputs(b[to], xs, places + at, kXPitch);
      Factors::outputs(a[to], dzs + at * kDzPitch, kDzPitch);
    };
    const auto multiply = [&](int from) {
#pragma unroll
      for (int v = 0; v < kFilter; ++v) {
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          Factor<T>::mma(acc[m][v], a[from][m], b[from][v][0], b[from][v][1]);
        }
      }
    };
    load(share, 0);
#pragma unroll 1
    for (int step = share; step < steps; step += 2 * shares) {
      load(step + shares, 1);
      multiply(0);
      if (step + shares >= steps) break;
      load(step + 2 * shares, 0);
      multiply(1);
    }
    __syncthreads();  // all threads are done with this stage
  }
  copy_async_wait<0>();

  // Among the warps that share a tile, the first adds the sums of the others in order.
  auto* sums = reinterpret_cast<float*>(stages);  // [share - 1][sum][tile, lane]
  constexpr int kSums = kTiles * kFilter * 4;
  const int lane = threadIdx.x % 32, threads = s.tiles * 32, mine = tile * 32 + lane;
  if (share > 0) {
    float* to = sums + (share - 1) * kSums * threads + mine;
#pragma unroll
    for (int at = 0; at < kSums; ++at) {
      to[at * threads] = acc[at / (kFilter * 4)][at / 4 % kFilter][at % 4];
    }
  }
  __syncthreads();
  if (share > 0) return;
  for (int from = 0; from < shares - 1; ++from) {
    const float* part = sums + from * kSums * threads + mine;
#pragma unroll
    for (int at = 0; at < kSums; ++at) {
      acc[at / (kFilter * 4)][at / 4 % kFilter][at % 4] += part[at * threads];
    }
  }
  const int c = c0 + tile * 8 + lane % 4 * 2, o = o0 + lane / 4;
  const int64_t weights = int64_t(shape.k) * shape.group_c() * kFilter * kFilter;
  float* to = partial + blockIdx.y * weights + int64_t((c * kFilter + u) * kFilter) * shape.k +
              group * shape.group_k() + o;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int v = 0; v < kFilter; ++v) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int down = m * 16 + e / 2 * 8;
        const int64_t at = int64_t(e % 2 * kFilter * kFilter + v) * shape.k + down;
        if (c + e % 2 < shape.group_c() && o + down < shape.group_k()) to[at] = acc[m][v][e];
      }
    }
  }
#endif
}

}  // namespace ridgeline::cuda
