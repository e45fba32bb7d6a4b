#pragma once

// The image of a block of conv/wgmma.cuh in shared memory, in the layout that wgmma reads.

#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/conv/wgmma.h"
#include "ridgeline/cuda/device/async_copy.cuh"

namespace ridgeline::cuda {

constexpr int kConvGroups = 4, kConvThreads = kConvGroups * 128;  // warpgroups of 64 rows of A

// The swizzled offset of 16 bytes within a slab: wgmma's swizzle for its width.
__host__ __device__ inline uint32_t slab_place(uint32_t bytes, int slab) {
  return bytes ^ ((bytes >> 7 & uint32_t(slab / 16 - 1)) << 4);
}

// Eight halves or four floats.
template <typename T>
struct alignas(16) ConvChunk {
  static constexpr int kCount = 16 / sizeof(T);
  T values[kCount];
};

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
  // Stores x[c, h, w] of this image channels-last.
  __device__ void transpose(const T* x) const {
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
  // Copies x[h, w, channels] of this image, which consists of whole, rounded chunks.
  __device__ void copy(const T* x) const {
    const int chunks = (shape_.c + kCount - 1) / kCount, row = shape_.w * chunks;
    for (int at = threadIdx.x; at < shape_.h * row; at += kConvThreads) {
      copy_async_16(place(at / row, at % row / chunks, at % chunks), x + int64_t(at) * kCount);
    }
    copy_async_commit();
    copy_async_wait<0>();
  }
  // Takes the gradient of a 2 x 2 pool back through pool and activation: dy has h/2 x w/2 pixels,
  // and the activation's output h x w. kEven: rows start at even offsets. The result is not rounded
  // to tf32; round_and_sum() must follow.
  template <bool kEven>
  __device__ void through_pool(const T* dy, const T* a, ActivationFn activation) const {
    const int h = shape_.h, w = shape_.w, columns = w / 2, windows = h / 2 * columns;
    const int items = windows * ((shape_.c + kCount - 1) / kCount);
    for (int item = threadIdx.x; item < items; item += kConvThreads) {
      const int chunk = item / windows, window = item % windows, c0 = chunk * kCount;
      const int y = window / columns * 2, x = window % columns * 2, here = shape_.c - c0;
      T quads[kCount][4], slopes[kCount];
#pragma unroll
      for (int e = 0; e < kCount; ++e) {  // reads a valid channel where there is none
        const int c = c0 + min(e, here - 1);
        load_quad<kEven>(a + (c * h + y) * w + x, w, quads[e]);
        slopes[e] = dy[c * windows + window];
      }
      int best[kCount];
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const QuadGrad<T> grad(quads[e], slopes[e], activation);
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
  // Rounds the image's values to the factor type and passes each channel's sum, taken before the
  // rounding, to put(channel, sum). Needs slabs of 128 bytes, and a scratch of two values per
  // thread.
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
  // Stores the image without its padding, [h, w, channels] in whole chunks.
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

}  // namespace ridgeline::cuda
