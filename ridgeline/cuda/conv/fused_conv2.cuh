#pragma once

#include "ridgeline/cuda/conv/fused_conv2.h"
#include "ridgeline/cuda/conv/source.cuh"
#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/device/async_copy.cuh"

namespace ridgeline::cuda {

template <int H, int W, int R1, int K1, int R2, int K2>
struct FusedConv2 {
  static constexpr int kH = H, kW = W, kFilter1 = R1, kOut1 = K1, kFilter2 = R2, kOut2 = K2;
  static constexpr int kPixels = H * W;
  // The output of the second pool.
  static constexpr int kOutH = ((H - R1 + 1) / 2 - R2 + 1) / 2;
  static constexpr int kOutW = ((W - R1 + 1) / 2 - R2 + 1) / 2;
  static constexpr int kWindows = kOutH * kOutW;
  // The part of the first pool's output that the second layer reads.
  static constexpr int kMapH = 2 * kOutH + R2 - 1, kMapW = 2 * kOutW + R2 - 1;
  static constexpr int kTilesX = kMapW / 8, kTiles1 = kTilesX * (kMapH / 2);
  static_assert(kMapW % 8 == 0 && kMapH % 2 == 0 && K2 % 8 == 0 && kPixels % 16 == 0 && W % 4 == 0);
  static_assert(2 * K1 * 2 % 16 == 0, "pairs of pixels start at multiples of 16 bytes");

  template <typename T>
  static constexpr DeepShape deep() {
    return {K1, K2, R2, kMapW * K1 * int(sizeof(T))};
  }
  using First = FirstShape<K1, R1>;
};

// Offsets in shared memory, in bytes; each segment starts at a multiple of 128.
template <typename T, typename Shape, int kImages>
struct FusedConv2Memory {
  static constexpr int pad(int bytes) { return (bytes + 127) / 128 * 128; }
  static constexpr int kPackedFilters2 = 0;
  static constexpr int kPackedFilters1 =
      kPackedFilters2 + pad(Shape::template deep<T>().template weight_words<T>() * 4);
  static constexpr int kBias = kPackedFilters1 + pad(Shape::First::template weight_words<T>() * 4);
  static constexpr int kMapBytes = Shape::kMapH * Shape::template deep<T>().pitch;
  static constexpr int kMap = kBias + pad((Shape::kOut1 + Shape::kOut2) * 4);
  static constexpr int kImageBytes = Shape::kPixels * int(sizeof(T));
  static constexpr int kImage = kMap + pad(kImages * kMapBytes);
  static constexpr int kRaw = kImage + pad(kImages * kImageBytes);
  static constexpr int kTotal = kRaw + pad(kImages * Shape::kPixels);
};

// Starts the copy of image i: its raw bytes to `raw`, or its values to `image`.
template <typename T, typename Shape>
__device__ void fetch_image(const ImageSource& source, int64_t i, std::byte* raw,
                            std::byte* image) {
  const bool bytes = source.set != nullptr;
  const auto* from =
      bytes ? reinterpret_cast<const std::byte*>(bytes_of(source, i, Shape::kPixels))
            : static_cast<const std::byte*>(source.x) + i * (Shape::kPixels * int64_t(sizeof(T)));
  std::byte* to = bytes ? raw : image;
  const int size = bytes ? Shape::kPixels : Shape::kPixels * int(sizeof(T));
  for (int at = threadIdx.x * 16; at < size; at += blockDim.x * 16) {
    copy_async_16(to + at, from + at);
  }
}

// Converts the fetched data to factors in `image`.
template <typename T>
__device__ void scale_image(const ImageSource& source, const std::byte* raw, std::byte* image,
                            int pixels) {
  auto* to = reinterpret_cast<T*>(image);
  if (source.set != nullptr) {
    for (int at = threadIdx.x * 4; at < pixels; at += blockDim.x * 4) {
      const uchar4 four = *reinterpret_cast<const uchar4*>(raw + at);
      const uint8_t each[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        to[at + e] = Factor<T>::round(fmaf(float(each[e]), source.scale, source.shift));
      }
    }
  } else if constexpr (sizeof(T) == 4) {
    for (int at = threadIdx.x; at < pixels; at += blockDim.x) to[at] = Factor<T>::round(to[at]);
  }
}

// kWarps warps take kImages images per pass. A warp takes kTiles tiles of 8 windows of the second
// pool at a time.
template <typename T, typename Shape, int kImages, int kWarps, int kTiles, int kBlocks>
__global__ void __launch_bounds__(kWarps * 32, kBlocks)
    conv2d_pool_x2_fused_kernel(const FusedConv2Args<T> args) {
#if __CUDA_ARCH__ >= 800  // mma of 16 x 8 x 16, cp.async; the kernels refuse older GPUs
  using Memory = FusedConv2Memory<T, Shape, kImages>;
  using First = typename Shape::First;
  constexpr DeepShape kDeep = Shape::template deep<T>();
  extern __shared__ __align__(128) std::byte memory[];
  auto* packed_filters2 = reinterpret_cast<uint32_t*>(memory + Memory::kPackedFilters2);
  auto* packed_filters1 = reinterpret_cast<uint32_t*>(memory + Memory::kPackedFilters1);
  auto* bias = reinterpret_cast<float*>(memory + Memory::kBias);
  std::byte *map = memory + Memory::kMap, *image = memory + Memory::kImage;
  std::byte* raw = memory + Memory::kRaw;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const auto fetch = [&](int64_t first) {
    for (int e = 0; e < kImages; ++e) {
      if (first + e >= args.source.n) break;
      fetch_image<T, Shape>(args.source, first + e, raw + e * Shape::kPixels,
                            image + e * Memory::kImageBytes);
    }
    copy_async_commit();
  };
  int64_t i = int64_t(blockIdx.x) * kImages;
  fetch(i);
  arrange_first_weights<T, Shape::kOut1, Shape::kFilter1>(args.w1, packed_filters1);
  arrange_deep_weights<T>(kDeep, args.w2, Shape::kOut2, Shape::kOut1, packed_filters2);
  for (int o = threadIdx.x; o < Shape::kOut1 + Shape::kOut2; o += blockDim.x) {
    const MixedIn<T> b = o < Shape::kOut1 ? args.b1 : args.b2;
    bias[o] = b ? b[o < Shape::kOut1 ? o : o - Shape::kOut1] : 0.0f;
  }

  for (; i < args.source.n; i += int64_t(gridDim.x) * kImages) {
    copy_async_wait<0>();
    __syncthreads();  // the copies have arrived, and all threads are done with the map
    scale_image<T>(args.source, raw, image, kImages * Shape::kPixels);
    __syncthreads();
    {
      uint4 b[First::template steps<T>()][First::kTileColumns / 2];
#pragma unroll
      for (int s = 0; s < First::template steps<T>(); ++s) {
#pragma unroll
        for (int p = 0; p < First::kTileColumns / 2; ++p) {
          b[s][p] = reinterpret_cast<const uint4*>(
              packed_filters1)[(s * (First::kTileColumns / 2) + p) * 32 + lane];
        }
      }
#pragma unroll 1
      for (int tile = warp; tile < kImages * Shape::kTiles1; tile += kWarps) {
        const int e = tile / Shape::kTiles1, at = tile % Shape::kTiles1;
        std::byte* to = map + e * Memory::kMapBytes;
        first_windows<T, Shape::kOut1, Shape::kFilter1>(
            reinterpret_cast<const uint32_t*>(image + e * Memory::kImageBytes),
            Shape::kW / Factor<T>::kPerWord, at / Shape::kTilesX, at % Shape::kTilesX, b,
            [&](int y, int x, int c, float most) {
              const float value = fast_activation<T>(args.activation1, most + bias[c]);
              const uint32_t offset =
                  place<T>(y * kDeep.pitch + (x * Shape::kOut1 + c) * sizeof(T));
              *reinterpret_cast<T*>(to + offset) = Factor<T>::round(value);
            });
      }
    }
    __syncthreads();
    fetch(i + int64_t(gridDim.x) * kImages);
    const int windows = int(min(int64_t(kImages), args.source.n - i)) * Shape::kWindows;
    T* y = args.y + i * (Shape::kOut2 * Shape::kWindows);
#pragma unroll 1
    for (int first = warp * kTiles * 8; first < windows; first += kWarps * kTiles * 8) {
      deep_windows<T, Shape::kOut2 / 8, kTiles>(
          kDeep, shared_address(map), packed_filters2, first, windows,
          [&](int window) {
            const int e = window / Shape::kWindows, at = window % Shape::kWindows;
            return e * Memory::kMapBytes + at / Shape::kOutW * 2 * kDeep.pitch +
                   at % Shape::kOutW * 2 * Shape::kOut1 * int(sizeof(T));
          },
          [&](int window, int c, float most) {
            const int e = window / Shape::kWindows, at = window % Shape::kWindows;
            y[(e * Shape::kOut2 + c) * Shape::kWindows + at] =
                T(fast_activation<T>(args.activation2, most + bias[Shape::kOut1 + c]));
          });
    }
  }
#endif
}

template <typename T, typename Shape, int kImages, int kWarps, int kTiles, int kBlocks>
cudaError_t launch_fused_conv2_of(const FusedConv2Args<T>& args, int sms, cudaStream_t stream) {
  constexpr int kBytes = FusedConv2Memory<T, Shape, kImages>::kTotal;
  const auto kernel = conv2d_pool_x2_fused_kernel<T, Shape, kImages, kWarps, kTiles, kBlocks>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int64_t passes = (args.source.n + kImages - 1) / kImages;
  const auto blocks = unsigned(passes < sms * kBlocks ? passes : sms * kBlocks);
  kernel<<<blocks, kWarps * 32, kBytes, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
