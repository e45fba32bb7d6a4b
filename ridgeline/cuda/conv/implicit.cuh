#pragma once

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/conv/window_store.cuh"
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
__device__ void stage_map(const ImplicitShape& shape, const ImplicitMap& map,
                          const OutputGrad<T>& x, int64_t i, std::byte* to) {
  for (int at = threadIdx.x * 16; at < map.bytes(); at += kImplicitThreads * 16) {
    *reinterpret_cast<uint4*>(to + at) = uint4{0, 0, 0, 0};
  }
  __syncthreads();
  const auto put = [&](int c, int y, int column, T value) {
    const uint32_t offset =
        (y + shape.pad) * map.pitch + ((column + shape.pad) * map.c + c) * int(sizeof(T));
    *reinterpret_cast<T*>(to + map.swizzled(offset)) = Factor<T>::round(float(value));
  };
  const int64_t plane = i * shape.c;
  const int h = shape.h, w = shape.w;
  if (x.a != nullptr) {
    for_quad_grads<kImplicitThreads>(
        x.a + plane * h * w, x.dy + plane * (h / 2) * (w / 2), x.curve, shape.c, h, w,
        [&](int c, int y, int column, const QuadGrad<T>& quad) {
          put(c, y + quad.best / 2, column + quad.best % 2, quad.slope);
        });
  } else {
    for_items<kImplicitThreads>(x.dy + plane * h * w, shape.c, h, w, put);
  }
}

// Which output a row of the matrix A is. Plain: pixels in order. Pooled: two tiles hold eight
// windows, so that the four pixels of one lie in one thread: rows g and g + 8 of the first tile are
// its upper pixels, those of the second its lower ones.
template <bool kPooled>
struct ImplicitRows {
  int out_w, count;  // of outputs, or of windows

  __device__ ImplicitRows(const ImplicitShape& shape)
      : out_w(kPooled ? shape.out_w() / 2 : shape.out_w()),
        count((kPooled ? shape.out_h() / 2 : shape.out_h()) * out_w) {}
  // Row `row` of tile `tile`: the place of its output in the image.
  __device__ int2 at(int tile, int row) const {
    const int which = kPooled ? tile / 2 * 8 + row % 8 : tile * 16 + row;
    const int index = min(which, count - 1), y = index / out_w, x = index % out_w;
    return kPooled ? int2{2 * y + tile % 2, 2 * x + row / 8} : int2{y, x};
  }
  __device__ int first(int tile) const { return kPooled ? tile / 2 * 8 : tile * 16; }
};

// The outputs of a tile of A: bias added, stored.
template <typename T>
__device__ void store_outputs(const ImplicitArgs<T>& args, int64_t i, int first, int o,
                              const float (&sums)[4]) {
  const int pixels = args.shape.out_h() * args.shape.out_w(), lane = threadIdx.x % 32;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int pixel = first + lane / 4 + e / 2 * 8, channel = o + e % 2;
    if (pixel >= pixels || channel >= args.shape.k) continue;
    const float bias = args.b ? args.b[channel] : 0.0f;
    args.y[(i * args.shape.k + channel) * pixels + pixel] = T(sums[e] + bias);
  }
}

// One block an image. The filters' rows come through a ring of two from the arranged words.
template <typename T, typename Share, bool kPooled>
__global__ void __launch_bounds__(kImplicitThreads)
    conv2d_implicit_kernel(ImplicitArgs<T> args, PooledOutput<T> pool, const uint32_t* words) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) std::byte memory[];
  const ImplicitShape& shape = args.shape;
  const ImplicitMap map(shape, sizeof(T));
  const int steps = implicit_steps(shape.filter, map.c, sizeof(T));
  constexpr int kRowTiles = Share::kRowTiles, kPairs = Share::kOutputs / 16;
  constexpr int kPassTiles = Share::kWarpRows * kRowTiles;
  static_assert(kPassTiles * 16 == kPassPixels);
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
  stage_map<T>(shape, map, args.x, i, memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / Share::kWarpColumns, warp_column = warp % Share::kWarpColumns;
  const ImplicitRows<kPooled> rows(shape);
  const uint32_t base = shared_address(memory);

  for (int pass = 0; rows.first(pass * kPassTiles) < rows.count; ++pass) {
    // Tiles go to the warps in turn, by pairs, so that a last pass that is not full is shared out.
    const auto tile_of = [&](int m) {
      return pass * kPassTiles + (m / 2 * Share::kWarpRows + warp_row) * 2 + m % 2;
    };
    uint32_t row[kRowTiles];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const int2 at = rows.at(tile_of(m), lane % 16);
      row[m] = at.x * map.pitch + at.y * map.c * int(sizeof(T)) + lane / 16 * 16;
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
        uint4 factors[kColumnTiles / 2];
#pragma unroll
        for (int pair = 0; pair < kColumnTiles / 2; ++pair) factors[pair] = b[32 * pair];
#pragma unroll
        for (int m = 0; m < kRowTiles; m += 2) {
          if (m > 0 && rows.first(tile_of(m)) >= rows.count) break;  // no outputs from here on
          uint32_t a[2][4];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            load_matrices(a[e], base + map.swizzled(row[m + e] + u * map.pitch + s * kStepBytes));
          }
#pragma unroll
          for (int pair = 0; pair < kColumnTiles / 2; ++pair) {
            const uint4& f = factors[pair];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              Factor<T>::mma(acc[m + e][2 * pair], a[e], f.x, f.y);
              Factor<T>::mma(acc[m + e][2 * pair + 1], a[e], f.z, f.w);
            }
          }
        }
      }
    }
    if (rows.first((pass + 1) * kPassTiles) < rows.count) {
      __syncthreads();  // all are done with the last row
      fetch(0);
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const int first = rows.first(tile_of(m));
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        const int o = (warp_column * kColumnTiles + j) * 8 + lane % 4 * 2;
        if constexpr (kPooled) {
          if (m % 2 == 0) {
            store_window<T>(shape, args.b, pool, args.y, i, first + lane / 4, o, acc[m][j],
                            acc[m + 1][j]);
          }
        } else {
          store_outputs(args, i, first, o, acc[m][j]);
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

template <typename T, typename Share, bool kPooled>
cudaError_t launch_implicit(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                            void* workspace, cudaStream_t stream) {
  auto* words = static_cast<uint32_t*>(workspace);
  arrange_weights_kernel<T>
      <<<128, 256, 0, stream>>>(args.shape, args.w, args.turned, Share::kOutputs, words);
  const auto kernel = conv2d_implicit_kernel<T, Share, kPooled>;
  const int bytes = implicit_shared(args.shape, sizeof(T));
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  kernel<<<unsigned(args.shape.n), kImplicitThreads, bytes, stream>>>(args, pool, words);
  return cudaGetLastError();
}

template <typename T, typename Share>
cudaError_t launch_implicit(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                            void* workspace, cudaStream_t stream) {
  return pool.pooled ? launch_implicit<T, Share, true>(args, pool, workspace, stream)
                     : launch_implicit<T, Share, false>(args, pool, workspace, stream);
}

template <typename T>
cudaError_t launch_conv2d_implicit(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                                   void* workspace, cudaStream_t stream) {
  return args.shape.k <= Narrow::kOutputs
             ? launch_implicit<T, Narrow>(args, pool, workspace, stream)
             : launch_implicit<T, Wide>(args, pool, workspace, stream);
}

}  // namespace ridgeline::cuda
