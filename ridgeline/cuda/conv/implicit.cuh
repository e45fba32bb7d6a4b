#pragma once

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/device/async_copy.cuh"

namespace ridgeline::cuda {

// Eight warps: four share the pixels, two the output channels.
constexpr int kImplicitThreads = 256, kWarpRows = 4, kWarpColumns = 2;
constexpr int kRowTiles = 4;  // tiles of 16 pixels a warp: 4 * 4 * 16 = 256 pixels a pass

// Chunks of 16 bytes within lines of 128: pixels a line apart then lie in different banks.
__device__ inline uint32_t swizzled(uint32_t bytes) { return bytes ^ ((bytes >> 3) & 0x70); }

// The map in shared memory, channels last, with its border of zeros.
struct ImplicitMap {
  int c, rows, columns;  // c: padded to whole chunks
  int pitch;             // bytes between rows

  __host__ __device__ ImplicitMap(const ImplicitShape& shape, int width) {
    const int whole = 16 / width;
    c = (shape.c + whole - 1) / whole * whole;
    rows = shape.h + 2 * shape.pad;
    columns = shape.w + 2 * shape.pad;
    pitch = columns * c * width;
  }
  // 128 more bytes: the last steps of k read past the last pixel (times zero).
  __host__ __device__ int bytes() const { return (rows * pitch + 128 + 127) / 128 * 128; }
};

__host__ __device__ constexpr int implicit_steps(int filter, int c, int width) {
  return (filter * c * width + kStepBytes - 1) / kStepBytes;
}
// Output channels of a kernel with kColumnTiles tiles a warp.
__host__ __device__ constexpr int implicit_outputs(int column_tiles) {
  return kWarpColumns * column_tiles * 8;
}

// words[u][step][tile pair][lane][tile of the pair][half]: B as lanes want it.
template <typename T>
__global__ void arrange_weights_kernel(ImplicitShape shape, const T* w, bool turned, int outputs,
                                       uint32_t* words) {
  const ImplicitMap map(shape, sizeof(T));
  const int steps = implicit_steps(shape.filter, map.c, sizeof(T)), pairs = outputs / 16;
  const int count = shape.filter * steps * pairs * 128;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const int half = i % 2, lane = i / 4 % 32, tile = i / 128 % pairs * 2 + i / 2 % 2;
    const int step = i / 128 / pairs % steps, u = i / 128 / pairs / steps;
    const int o = tile * 8 + lane / 4;
    T values[Factor<T>::kPerWord];
#pragma unroll
    for (int e = 0; e < Factor<T>::kPerWord; ++e) {
      const int k = (step * kStepBytes + half * 16 + lane % 4 * 4) / int(sizeof(T)) + e;
      const int v = k / map.c, c = k % map.c, last = shape.filter - 1;
      const bool inside = v < shape.filter && c < shape.c && o < shape.k;
      const int64_t at =
          turned ? ((int64_t(c) * shape.k + o) * shape.filter + last - u) * shape.filter + last - v
                 : ((int64_t(o) * shape.c + c) * shape.filter + u) * shape.filter + v;
      values[e] = inside ? Factor<T>::round(float(w[at])) : T(0.0f);
    }
    words[i] = *reinterpret_cast<uint32_t*>(values);
  }
}

// Image i, channels first in global memory, to its places in the map.
template <typename T>
__device__ void stage_map(const ImplicitShape& shape, const ImplicitMap& map, const T* x,
                          std::byte* to) {
  for (int at = threadIdx.x * 16; at < map.bytes(); at += kImplicitThreads * 16) {
    *reinterpret_cast<uint4*>(to + at) = uint4{0, 0, 0, 0};
  }
  __syncthreads();
  const int pixels = shape.h * shape.w;
#pragma unroll 8
  for (int at = threadIdx.x; at < shape.c * pixels; at += kImplicitThreads) {
    const int c = at / pixels, pixel = at % pixels;
    const int row = pixel / shape.w + shape.pad, column = pixel % shape.w + shape.pad;
    const uint32_t offset = row * map.pitch + (column * map.c + c) * int(sizeof(T));
    *reinterpret_cast<T*>(to + swizzled(offset)) = Factor<T>::round(float(x[at]));
  }
}

// One block an image. The filters' rows come through a ring of two from the arranged words.
template <typename T, int kColumnTiles>
__global__ void __launch_bounds__(kImplicitThreads)
    conv2d_implicit_kernel(ImplicitArgs<T> args, const uint32_t* words) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) std::byte memory[];
  const ImplicitShape& shape = args.shape;
  const ImplicitMap map(shape, sizeof(T));
  const int steps = implicit_steps(shape.filter, map.c, sizeof(T));
  constexpr int kPairs = kWarpColumns * kColumnTiles / 2;  // of the block
  const int stage = steps * kPairs * 512;                  // bytes
  std::byte* ring = memory + map.bytes();
  const auto fetch = [&](int u) {
    const auto* from = reinterpret_cast<const std::byte*>(words) + int64_t(u) * stage;
    std::byte* to = ring + u % 2 * stage;
    for (int at = threadIdx.x * 16; at < stage; at += kImplicitThreads * 16) {
      copy_async_16(to + at, from + at);
    }
    copy_async_commit();
  };

  const int64_t i = blockIdx.x;
  fetch(0);
  stage_map<T>(shape, map, args.x + i * shape.c * shape.h * shape.w, memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / kWarpColumns, warp_column = warp % kWarpColumns;
  const int out_w = shape.out_w(), pixels = shape.out_h() * out_w;
  const uint32_t base = shared_address(memory);

  for (int pass = 0; pass * kWarpRows * kRowTiles * 16 < pixels; ++pass) {
    const int first = (pass * kWarpRows + warp_row) * kRowTiles * 16;
    uint32_t row[kRowTiles];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const int pixel = min(first + m * 16 + lane % 16, pixels - 1);
      row[m] = pixel / out_w * map.pitch + pixel % out_w * map.c * int(sizeof(T)) + lane / 16 * 16;
    }
    float acc[kRowTiles][kColumnTiles][4] = {};
#pragma unroll 1
    for (int u = 0; u < shape.filter; ++u) {
      copy_async_wait<0>();
      __syncthreads();  // row u has come, and all are done with row u - 1
      if (u + 1 < shape.filter) fetch(u + 1);
      const auto* b = reinterpret_cast<const uint4*>(ring + u % 2 * stage) +
                      warp_column * (kColumnTiles / 2) * 32 + lane;
#pragma unroll 2
      for (int s = 0; s < steps; ++s, b += 32 * kPairs) {
        uint32_t a[kRowTiles][4];
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          load_matrices(a[m], base + swizzled(row[m] + u * map.pitch + s * kStepBytes));
        }
#pragma unroll
        for (int pair = 0; pair < kColumnTiles / 2; ++pair) {
          const uint4 factors = b[32 * pair];
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
            Factor<T>::mma(acc[m][2 * pair], a[m], factors.x, factors.y);
            Factor<T>::mma(acc[m][2 * pair + 1], a[m], factors.z, factors.w);
          }
        }
      }
    }
    if ((pass + 1) * kWarpRows * kRowTiles * 16 < pixels) {
      __syncthreads();  // all are done with the last row
      fetch(0);
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int pixel = first + m * 16 + lane / 4 + e / 2 * 8;
          const int o = (warp_column * kColumnTiles + j) * 8 + lane % 4 * 2 + e % 2;
          if (pixel >= pixels || o >= shape.k) continue;
          const float bias = args.b ? args.b[o] : 0.0f;
          args.y[(i * shape.k + o) * pixels + pixel] = T(acc[m][j][e] + bias);
        }
      }
    }
  }
#endif
}

inline int implicit_shared(const ImplicitShape& shape, int width, int column_tiles) {
  const ImplicitMap map(shape, width);
  const int stage =
      implicit_steps(shape.filter, map.c, width) * (kWarpColumns * column_tiles / 2) * 512;
  return map.bytes() + 2 * stage;
}

// The least that holds k channels: 32 or 64.
inline int column_tiles(int k) { return k <= 32 ? 2 : 4; }

template <typename T, int kColumnTiles>
cudaError_t launch_implicit(const ImplicitArgs<T>& args, void* workspace, cudaStream_t stream) {
  auto* words = static_cast<uint32_t*>(workspace);
  arrange_weights_kernel<T><<<64, 256, 0, stream>>>(args.shape, args.w, args.turned,
                                                    implicit_outputs(kColumnTiles), words);
  const auto kernel = conv2d_implicit_kernel<T, kColumnTiles>;
  const int bytes = implicit_shared(args.shape, sizeof(T), kColumnTiles);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  kernel<<<unsigned(args.shape.n), kImplicitThreads, bytes, stream>>>(args, words);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_conv2d_implicit(const ImplicitArgs<T>& args, void* workspace,
                                   cudaStream_t stream) {
  return column_tiles(args.shape.k) == 2 ? launch_implicit<T, 2>(args, workspace, stream)
                                         : launch_implicit<T, 4>(args, workspace, stream);
}

}  // namespace ridgeline::cuda
