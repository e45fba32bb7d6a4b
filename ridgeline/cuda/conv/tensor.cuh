#pragma once

// Convolution, bias, activation and a 2 x 2 max pool on tensor cores (mma.sync), from a map in
// shared memory. One warp takes a few tiles of 16 rows of A at a time. The sums of a pooling window
// end in one thread, so the maximum needs no exchange, and the activation, which must be
// non-decreasing, is computed once per window.
//
// The map is channels-last, so that for one row u of the filter the taps (v, c) of an output are
// contiguous in memory: k is a run of bytes that ldmatrix reads. Two neighbouring outputs share a
// row of A: its run holds one tap more, and B holds the filter twice, shifted by a tap and with
// zeros in the gap ("twins"). This halves the reads of the map, aligns pairs of pixels with as few
// as 4 channels (16-bit) to 16 bytes, and costs 1/(R+1) more products.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/conv/nan_max.cuh"
#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/device/mma.cuh"

namespace ridgeline::cuda {

// Describes a factor type to the tensor-core code. float stands for tf32.
template <typename T>
struct Factor {
  static constexpr int kPerWord = 2;
  static __device__ T round(float value) { return T(value); }
  static __device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    mma_m16n8k16<T>(d, a, b0, b1);
  }
};
template <>
struct Factor<float> {
  static constexpr int kPerWord = 1;
  static __device__ float round(float value) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return __uint_as_float(bits);
  }
  static __device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

// Below, a step of k is 32 bytes of A's rows: 16 values of 16 bits, or 8 of 32.
constexpr int kStepBytes = 32;

// The activation for the end of a tensor-core product, by the hardware's functions. Their error
// (tanh has 11 bits in bf16; the others have an absolute error of 2^-22) is smaller than the
// rounding of the factors. Decreasing activations are not supported.
template <typename T>
__device__ __forceinline__ float fast_activation(ActivationFn activation, float x) {
  if (activation == ActivationFn::tanh) {
    if constexpr (__is_same(T, __nv_bfloat16)) {
      float y;
      asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
      return y;
    } else {
      const float t = __expf(-2.0f * fabsf(x));
      return copysignf(__fdividef(1.0f - t, 1.0f + t), x);
    }
  }
  if (activation == ActivationFn::relu) return x < 0.0f ? 0.0f : x;
  if (activation == ActivationFn::sigmoid) return __fdividef(1.0f, 1.0f + __expf(-x));
  return x;
}

// Maps 32-bit words to 16-byte chunks. For 32-bit factors every other row of eight chunks has its
// neighbours exchanged, because pixel pairs would otherwise fall into the same banks.
template <typename T>
__device__ inline uint32_t place(uint32_t bytes) {
  return sizeof(T) == 4 ? bytes ^ ((bytes >> 3) & 16) : bytes;
}

__device__ inline void load_matrices(uint32_t (&a)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address));
}

// ---- several input channels: C * pixel bytes per pixel ----

// The geometry of a layer from a map with `c` (padded) channels to k outputs, with filters of r x
// r.
struct DeepShape {
  int c, k, r;
  int pitch;  // bytes between the map's rows, a multiple of 16

  template <typename T>
  __host__ __device__ constexpr int steps() const {  // of one row of the filter
    return ((r + 1) * c * int(sizeof(T)) + kStepBytes - 1) / kStepBytes;
  }
  template <typename T>
  __host__ __device__ constexpr int weight_words() const {
    return r * steps<T>() * (2 * k / 8) * 64;
  }
};

// Packs B in the order in which lanes load it: [u][step][tile pair][lane][tile of the pair][half].
// w is [outputs, channels, r, r]; values beyond its extents are zero.
template <typename T>
__device__ void arrange_deep_weights(const DeepShape& shape, const T* w, int outputs, int channels,
                                     uint32_t* packed_filters) {
  const int pairs = shape.k / 8, steps = shape.steps<T>();
  for (int i = threadIdx.x; i < shape.weight_words<T>(); i += blockDim.x) {
    const int half = i % 2, lane = i / 4 % 32, tile = i / 128 % pairs * 2 + i / 2 % 2;
    const int step = i / 128 / pairs % steps, u = i / 128 / pairs / steps;
    const int n = tile * 8 + lane / 4, twin = n / shape.k, o = n % shape.k;
    T values[Factor<T>::kPerWord];
#pragma unroll
    for (int e = 0; e < Factor<T>::kPerWord; ++e) {
      const int k = (step * kStepBytes + half * 16 + lane % 4 * 4) / int(sizeof(T)) + e;
      const int v = k / shape.c - twin, c = k % shape.c;
      const bool inside = v >= 0 && v < shape.r && c < channels && o < outputs;
      const int64_t at = ((int64_t(o) * channels + c) * shape.r + u) * shape.r + v;
      values[e] = inside ? Factor<T>::round(float(w[at])) : T(0.0f);
    }
    packed_filters[i] = *reinterpret_cast<uint32_t*>(values);
  }
}

// One warp computes the pooling windows [first, first + kTiles * 8). store(window, channel, value)
// receives each maximum before bias and activation. `map` and `packed_filters` are shared-memory
// addresses. kPairs = k / 8. corner(window) is the offset of the window's first pixel in the map.
// Windows from `windows` on are computed from the last one's pixels and not stored.
template <typename T, int kPairs, int kTiles, typename Corner, typename Store>
__device__ __forceinline__ void deep_windows(const DeepShape& shape, uint32_t map,
                                             const uint32_t* packed_filters, int first, int windows,
                                             Corner corner, Store store) {
  const int lane = threadIdx.x % 32;
  uint32_t row[kTiles];
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    const int window = min(first + m * 8 + lane % 8, windows - 1);
    row[m] = corner(window) + (lane / 8 & 1) * shape.pitch + (lane / 16) * 16;
  }
  float acc[kTiles][2 * kPairs][4] = {};
  const auto* b = reinterpret_cast<const uint4*>(packed_filters) + lane;
  const int steps = shape.steps<T>();
#pragma unroll 1
  for (int u = 0; u < shape.r; ++u) {
#pragma unroll
    for (int s = 0; s < steps; ++s, b += 32 * kPairs) {
      uint32_t a[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        load_matrices(a[m], map + place<T>(row[m] + u * shape.pitch + s * kStepBytes));
      }
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const uint4 factors = b[32 * pair];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          Factor<T>::mma(acc[m][2 * pair], a[m], factors.x, factors.y);
          Factor<T>::mma(acc[m][2 * pair + 1], a[m], factors.z, factors.w);
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    const int window = first + m * 8 + lane / 4;
    if (window >= windows) continue;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float(&left)[4] = acc[m][j], (&right)[4] = acc[m][j + kPairs];
        const float most = nan_max(nan_max(left[e], left[e + 2]), nan_max(right[e], right[e + 2]));
        store(window, j * 8 + lane % 4 * 2 + e, most);
      }
    }
  }
}

// ---- one input channel ----

// With one channel, a row of A is the patch of (R + 1) x (R + 1) pixels under a whole window, with
// rows padded to 8, and B holds the filter four times.
template <int kOutputs, int kFilter>
struct FirstShape {
  static constexpr int kRows = kFilter + 1;
  static constexpr int kTileColumns = kOutputs / 2;  // tiles of B: 4 * outputs / 8
  static_assert(kOutputs % 4 == 0 && kFilter % 2 == 1 && kFilter <= 7);
  template <typename T>
  static constexpr int steps() {
    return kRows * 8 * int(sizeof(T)) / kStepBytes;
  }
  template <typename T>
  static constexpr int weight_words() {
    return steps<T>() * kTileColumns * 64;
  }
};

// [step][tile pair][lane][tile of the pair][half]. The columns of B are ordered so that a thread's
// sums are all four pixels of outputs / 4 channels: lane % 4 * (outputs / 4) + ...
template <typename T, int kOutputs, int kFilter>
__device__ void arrange_first_weights(const T* w, uint32_t* packed_filters) {
  using Shape = FirstShape<kOutputs, kFilter>;
  constexpr int kPairs = Shape::kTileColumns / 2;
  for (int i = threadIdx.x; i < Shape::template weight_words<T>(); i += blockDim.x) {
    const int half = i % 2, lane = i / 4 % 32, tile = i / 128 % kPairs * 2 + i / 2 % 2;
    const int step = i / 128 / kPairs, column = lane / 4;
    const int index = tile * 2 + column % 2;
    const int o = column / 2 * (kOutputs / 4) + index / 4, down = index / 2 % 2, right = index % 2;
    T values[Factor<T>::kPerWord];
#pragma unroll
    for (int e = 0; e < Factor<T>::kPerWord; ++e) {
      const int k = (step * kStepBytes + half * 16 + lane % 4 * 4) / int(sizeof(T)) + e;
      const int u = k / 8 - down, v = k % 8 - right;
      const bool inside = u >= 0 && u < kFilter && v >= 0 && v < kFilter;
      values[e] = inside ? Factor<T>::round(float(w[(o * kFilter + u) * kFilter + v])) : T(0.0f);
    }
    packed_filters[i] = *reinterpret_cast<uint32_t*>(values);
  }
}

// Tile (tile_y, tile_x) is the windows of rows 2 * tile_y and 2 * tile_y + 1, columns 8 * tile_x ..
// + 7. `image` is in shared memory with `pitch` words between its rows (a word is two 16-bit
// pixels, or one 32-bit pixel), and b is this thread's part of the packed weights.
template <typename T, int kOutputs, int kFilter, typename Store>
__device__ __forceinline__ void first_windows(
    const uint32_t* image, int pitch, int tile_y, int tile_x,
    const uint4 (&b)[FirstShape<kOutputs, kFilter>::template steps<T>()]
                    [FirstShape<kOutputs, kFilter>::kTileColumns / 2],
    Store store) {
  using Shape = FirstShape<kOutputs, kFilter>;
  constexpr int kPairs = Shape::kTileColumns / 2, kWide = 2 / Factor<T>::kPerWord;
  const int lane = threadIdx.x % 32, x = tile_x * 8 + lane / 4;
  // Row i of the patches, words lane % 4 (and + 4 for 32-bit pixels).
  uint32_t pixels[Shape::kRows + 2][kWide];
  const uint32_t* corner = image + tile_y * 4 * pitch + x * kWide + lane % 4;
#pragma unroll
  for (int i = 0; i < Shape::kRows + 2; ++i) {
#pragma unroll
    for (int e = 0; e < kWide; ++e) pixels[i][e] = corner[i * pitch + 4 * e];
  }
  float acc[Shape::kTileColumns][4] = {};
#pragma unroll
  for (int s = 0; s < Shape::template steps<T>(); ++s) {
    // 16-bit: a step is two rows of the patch; 32-bit: one row.
    uint32_t a[4];
    if constexpr (sizeof(T) == 2) {
      a[0] = pixels[2 * s][0], a[1] = pixels[2 * s + 2][0];
      a[2] = pixels[2 * s + 1][0], a[3] = pixels[2 * s + 3][0];
    } else {
      a[0] = pixels[s][0], a[1] = pixels[s + 2][0];
      a[2] = pixels[s][1], a[3] = pixels[s + 2][1];
    }
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      Factor<T>::mma(acc[2 * pair], a, b[s][pair].x, b[s][pair].y);
      Factor<T>::mma(acc[2 * pair + 1], a, b[s][pair].z, b[s][pair].w);
    }
  }
#pragma unroll
  for (int below = 0; below < 2; ++below) {
#pragma unroll
    for (int c = 0; c < kOutputs / 4; ++c) {
      const float* upper = &acc[2 * c][2 * below];
      const float* lower = &acc[2 * c + 1][2 * below];
      const float most = nan_max(nan_max(upper[0], upper[1]), nan_max(lower[0], lower[1]));
      store(tile_y * 2 + below, x, lane % 4 * (kOutputs / 4) + c, most);
    }
  }
}

}  // namespace ridgeline::cuda
