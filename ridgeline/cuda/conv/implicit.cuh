#pragma once

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/device/async_copy.cuh"

namespace ridgeline::cuda {

constexpr int kImplicitThreads = 256;

// Eight warps share 256 pixels a pass and the output channels: kRowTiles tiles of 16 pixels by four
// tiles of 8 channels each. More channels a warp is fewer reads of the map.
struct Narrow {  // up to 32 channels
  static constexpr int kWarpRows = 8, kWarpColumns = 1, kRowTiles = 2, kOutputs = 32;
};
struct Wide {  // up to 64
  static constexpr int kWarpRows = 4, kWarpColumns = 2, kRowTiles = 4, kOutputs = 64;
};
constexpr int kColumnTiles = 4, kPassPixels = 256;
constexpr int implicit_outputs(int k) { return k <= Narrow::kOutputs ? 32 : 64; }

// The map in shared memory, channels last, with its border of zeros.
struct ImplicitMap {
  int c, rows, columns;  // c: padded to whole chunks
  int pitch;             // bytes between rows
  int shift;             // of the number that a pixel's chunks are exchanged by

  __host__ __device__ ImplicitMap(const ImplicitShape& shape, int width) {
    const int whole = 16 / width;
    c = (shape.c + whole - 1) / whole * whole;
    rows = shape.h + 2 * shape.pad;
    columns = shape.w + 2 * shape.pad;
    pitch = columns * c * width;
    shift = c * width % 256 == 0 ? 8 : 7;
  }
  // Chunks of 16 bytes exchanged within lines of 128, so that neighbouring pixels, a line or two
  // apart, lie in different banks.
  __device__ uint32_t swizzled(uint32_t bytes) const { return bytes ^ ((bytes >> shift & 7) << 4); }
  // 128 more bytes: the last steps of k read past the last pixel (times zero).
  __host__ __device__ int bytes() const { return (rows * pitch + 128 + 127) / 128 * 128; }
};

__host__ __device__ constexpr int implicit_steps(int filter, int c, int width) {
  return (filter * c * width + kStepBytes - 1) / kStepBytes;
}

// Calls put(channel, row, column, value) for each number of `channels` images of h x w, by kThreads
// threads. Eight loads are under way at a time, and nothing is divided on the way.
template <int kThreads, typename T, typename Put>
__device__ void for_numbers(const T* from, int channels, int h, int w, Put put) {
  int lanes = 1;  // along a row
  while (lanes < w && lanes < 32) lanes *= 2;
  const int step = kThreads / lanes, rows = channels * h;
  for (int column = threadIdx.x % lanes; column < w; column += lanes) {
    int row = threadIdx.x / lanes, c = row / h, y = row % h;
    for (; row < rows; row += 8 * step) {
      T values[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int at = row + e * step;
        values[e] = at < rows ? from[int64_t(at) * w + column] : T(0.0f);
      }
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (row + e * step < rows) put(c, y, column, float(values[e]));
        y += step;
        while (y >= h) y -= h, ++c;
      }
    }
  }
}

// words[u][step][tile pair][lane][tile of the pair][half]: B as lanes want it.
template <typename T>
__global__ void arrange_weights_kernel(ImplicitShape shape, const T* w, bool turned, int outputs,
                                       uint32_t* words) {
#if __CUDA_ARCH__ >= 800  // tf32
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
#endif
}

// Image i, channels first in global memory, to its places in the map.
template <typename T>
__device__ void stage_map(const ImplicitShape& shape, const ImplicitMap& map, const T* x,
                          std::byte* to) {
  for (int at = threadIdx.x * 16; at < map.bytes(); at += kImplicitThreads * 16) {
    *reinterpret_cast<uint4*>(to + at) = uint4{0, 0, 0, 0};
  }
  __syncthreads();
  for_numbers<kImplicitThreads>(
      x, shape.c, shape.h, shape.w, [&](int c, int y, int column, float value) {
        const uint32_t offset =
            (y + shape.pad) * map.pitch + ((column + shape.pad) * map.c + c) * int(sizeof(T));
        *reinterpret_cast<T*>(to + map.swizzled(offset)) = Factor<T>::round(value);
      });
}

// One block an image. The filters' rows come through a ring of two from the arranged words.
template <typename T, typename Share>
__global__ void __launch_bounds__(kImplicitThreads)
    conv2d_implicit_kernel(ImplicitArgs<T> args, const uint32_t* words) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) std::byte memory[];
  const ImplicitShape& shape = args.shape;
  const ImplicitMap map(shape, sizeof(T));
  const int steps = implicit_steps(shape.filter, map.c, sizeof(T));
  constexpr int kRowTiles = Share::kRowTiles, kPairs = Share::kOutputs / 16;
  static_assert(Share::kWarpRows * kRowTiles * 16 == kPassPixels);
  const int stage = steps * kPairs * 512;  // bytes
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
  const int warp_row = warp / Share::kWarpColumns, warp_column = warp % Share::kWarpColumns;
  const int out_w = shape.out_w(), pixels = shape.out_h() * out_w;
  const uint32_t base = shared_address(memory);

  for (int pass = 0; pass * kPassPixels < pixels; ++pass) {
    const int first = pass * kPassPixels + warp_row * kRowTiles * 16;
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
          load_matrices(a[m], base + map.swizzled(row[m] + u * map.pitch + s * kStepBytes));
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
    if ((pass + 1) * kPassPixels < pixels) {
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

inline int implicit_shared(const ImplicitShape& shape, int width) {
  const ImplicitMap map(shape, width);
  const int pairs = implicit_outputs(shape.k) / 16;
  return map.bytes() + 2 * implicit_steps(shape.filter, map.c, width) * pairs * 512;
}

template <typename T, typename Share>
cudaError_t launch_implicit(const ImplicitArgs<T>& args, void* workspace, cudaStream_t stream) {
  auto* words = static_cast<uint32_t*>(workspace);
  arrange_weights_kernel<T>
      <<<128, 256, 0, stream>>>(args.shape, args.w, args.turned, Share::kOutputs, words);
  const auto kernel = conv2d_implicit_kernel<T, Share>;
  const int bytes = implicit_shared(args.shape, sizeof(T));
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  kernel<<<unsigned(args.shape.n), kImplicitThreads, bytes, stream>>>(args, words);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_conv2d_implicit(const ImplicitArgs<T>& args, void* workspace,
                                   cudaStream_t stream) {
  return args.shape.k <= Narrow::kOutputs ? launch_implicit<T, Narrow>(args, workspace, stream)
                                          : launch_implicit<T, Wide>(args, workspace, stream);
}

}  // namespace ridgeline::cuda
