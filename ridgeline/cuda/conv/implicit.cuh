#pragma once

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/conv/window_store.cuh"
#include "ridgeline/cuda/device/async_copy.cuh"

namespace ridgeline::cuda {

// A block takes an image by 32 output channels: eight warps of two tiles of 16 pixels by four tiles
// of 8 channels, 256 pixels a pass. Filters' rows come through a ring.
constexpr int kImplicitThreads = 256, kImplicitWarps = kImplicitThreads / 32;
constexpr int kColumnTiles = 4, kImplicitOutputs = kColumnTiles * 8;
constexpr int kPassPixels = kImplicitWarps * 32, kRing = 3;

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

// words[block][u][step][tile pair][lane][tile of the pair][half]: B as lanes want it.
template <typename T>
__global__ void arrange_weights_kernel(ImplicitShape shape, const T* w, bool turned,
                                       uint32_t* words) {
#if __CUDA_ARCH__ >= 800  // tf32
  const ImplicitMap map(shape, sizeof(T));
  constexpr int kPairs = kColumnTiles / 2;
  const int steps = implicit_steps(shape.filter, map.c, sizeof(T));
  const int blocks = (shape.k + kImplicitOutputs - 1) / kImplicitOutputs;
  const int count = blocks * shape.filter * steps * kPairs * 128;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const int half = i % 2, lane = i / 4 % 32, tile = i / 128 % kPairs * 2 + i / 2 % 2;
    const int step = i / 128 / kPairs % steps, u = i / 128 / kPairs / steps % shape.filter;
    const int block = i / 128 / kPairs / steps / shape.filter;
    const int o = block * kImplicitOutputs + tile * 8 + lane / 4;
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

// Image i, channels first in global memory, to its places in the map: a pixel's (or a window's)
// chunk of channels a thread, so that what is stored is whole chunks.
template <typename T>
__device__ void stage_map(const ImplicitShape& shape, const ImplicitMap& map,
                          const OutputGrad<T>& x, int64_t i, std::byte* to) {
  constexpr int kCount = 16 / sizeof(T);
  struct alignas(16) Chunk {
    T values[kCount];
  };
  for (int at = threadIdx.x * 16; at < map.bytes(); at += kImplicitThreads * 16) {
    *reinterpret_cast<uint4*>(to + at) = uint4{0, 0, 0, 0};
  }
  __syncthreads();
  const auto put = [&](int chunk, int y, int column, const Chunk& values) {
    const uint32_t offset = (y + shape.pad) * map.pitch +
                            ((column + shape.pad) * map.c + chunk * kCount) * int(sizeof(T));
    *reinterpret_cast<Chunk*>(to + map.swizzled(offset)) = values;
  };
  const int h = shape.h, w = shape.w, chunks = map.c / kCount;
  const bool pooled = x.a != nullptr;
  const int columns = pooled ? w / 2 : w, count = columns * (pooled ? h / 2 : h);
  const T* dy = x.dy + i * shape.c * count;
  const T* a = x.a + i * shape.c * h * w;
  for (int item = threadIdx.x; item < count * chunks; item += kImplicitThreads) {
    const int at = item % count, chunk = item / count, y = at / columns, column = at % columns;
    const T* from = dy + chunk * kCount * count + at;
    const int here = min(kCount, shape.c - chunk * kCount);
    Chunk values;
#pragma unroll
    for (int e = 0; e < kCount; ++e) values.values[e] = e < here ? from[e * count] : T(0.0f);
    if (!pooled) {
      if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int e = 0; e < kCount; ++e) values.values[e] = Factor<T>::round(values.values[e]);
      }
      put(chunk, y, column, values);
      continue;
    }
    const T* corner = a + (chunk * kCount * h + 2 * y) * w + 2 * column;
    T quads[kCount][4];
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      if (e >= here) continue;
      load_two(corner + e * h * w, w % 2 == 0, quads[e][0], quads[e][1]);
      load_two(corner + e * h * w + w, w % 2 == 0, quads[e][2], quads[e][3]);
    }
    Chunk four[4];
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const QuadGrad<T> quad(quads[e], values.values[e], x.curve);
#pragma unroll
      for (int pixel = 0; pixel < 4; ++pixel) {
        four[pixel].values[e] = e < here ? Factor<T>::round(float(quad.at(pixel))) : T(0.0f);
      }
    }
#pragma unroll
    for (int pixel = 0; pixel < 4; ++pixel) {
      put(chunk, 2 * y + pixel / 2, 2 * column + pixel % 2, four[pixel]);
    }
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

inline int implicit_stage(const ImplicitShape& shape, int width) {  // bytes of a filter's row
  return implicit_steps(shape.filter, ImplicitMap(shape, width).c, width) * kColumnTiles / 2 * 512;
}

// The ring, and after a pass its sums.
constexpr int kSumsBytes = kImplicitOutputs * sums_pitch(kPassPixels) * 4;
inline int implicit_shared(const ImplicitShape& shape, int width) {
  const int ring = kRing * implicit_stage(shape, width);
  return ImplicitMap(shape, width).bytes() + (ring > kSumsBytes ? ring : kSumsBytes);
}

template <typename T, bool kPooled>
__global__ void __launch_bounds__(kImplicitThreads, 2)
    conv2d_implicit_kernel(ImplicitArgs<T> args, PooledOutput<T> pool, const uint32_t* words) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) std::byte memory[];
  const ImplicitShape& shape = args.shape;
  const ImplicitMap map(shape, sizeof(T));
  const int steps = implicit_steps(shape.filter, map.c, sizeof(T));
  constexpr int kPairs = kColumnTiles / 2;
  const int stage = steps * kPairs * 512;  // bytes
  std::byte* ring = memory + map.bytes();
  const auto* filters =
      reinterpret_cast<const std::byte*>(words) + int64_t(blockIdx.y) * shape.filter * stage;
  const auto fetch = [&](int u) {  // counts as a group of copies even past the last row
    std::byte* to = ring + u % kRing * stage;
    for (int at = threadIdx.x * 16; u < shape.filter && at < stage; at += kImplicitThreads * 16) {
      copy_async_16(to + at, filters + int64_t(u) * stage + at);
    }
    copy_async_commit();
  };

  const int64_t i = blockIdx.x;
  fetch(0), fetch(1);
  stage_map<T>(shape, map, args.x, i, memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const ImplicitRows<kPooled> rows(shape);
  const uint32_t base = shared_address(memory);
  const int o0 = int(blockIdx.y) * kImplicitOutputs;
  const BlockOutput<T> out{shape, args.b, args.y, i, o0, min(kImplicitOutputs, shape.k - o0)};
  constexpr int kPassTiles = 2 * kImplicitWarps, kPitch = sums_pitch(kPassPixels);

  for (int pass = 0; rows.first(pass * kPassTiles) < rows.count; ++pass) {
    const int tile = pass * kPassTiles + warp * 2;
    uint32_t row[2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int2 at = rows.at(tile + m, lane % 16);
      row[m] = at.x * map.pitch + at.y * map.c * int(sizeof(T)) + lane / 16 * 16;
    }
    const bool works = rows.first(tile) < rows.count;
    float acc[2][kColumnTiles][4] = {};
#pragma unroll 1
    for (int u = 0; u < shape.filter; ++u) {
      copy_async_wait<1>();
      __syncthreads();  // row u has come, and all are done with row u - 1
      fetch(u + 2);
      if (!works) continue;
      const auto* b = reinterpret_cast<const uint4*>(ring + u % kRing * stage) + lane;
#pragma unroll 4
      for (int s = 0; s < steps; ++s, b += 32 * kPairs) {
        uint4 factors[kPairs];
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) factors[pair] = b[32 * pair];
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          load_matrices(a[m], base + map.swizzled(row[m] + u * map.pitch + s * kStepBytes));
        }
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
          const uint4& f = factors[pair];
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            Factor<T>::mma(acc[m][2 * pair], a[m], f.x, f.y);
            Factor<T>::mma(acc[m][2 * pair + 1], a[m], f.z, f.w);
          }
        }
      }
    }
    copy_async_wait<0>();
    __syncthreads();  // all are done with the ring
    auto* sums = reinterpret_cast<float*>(ring);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        put_sums(acc[m][j], sums + j * 8 * kPitch + (warp * 2 + m) * 16, kPitch);
      }
    }
    __syncthreads();
    const int first = rows.first(pass * kPassTiles);
    if constexpr (kPooled) {
      store_windows<kImplicitThreads>(out, pool, sums, kPitch, first, kPassPixels);
    } else {
      store_pixels<kImplicitThreads>(out, sums, kPitch, first, kPassPixels);
    }
    if (rows.first((pass + 1) * kPassTiles) >= rows.count) break;
    __syncthreads();  // the sums have been read
    fetch(0), fetch(1);
  }
#endif
}

template <typename T, bool kPooled>
cudaError_t launch_implicit(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                            void* workspace, cudaStream_t stream) {
  auto* words = static_cast<uint32_t*>(workspace);
  arrange_weights_kernel<T><<<128, 256, 0, stream>>>(args.shape, args.w, args.turned, words);
  const auto kernel = conv2d_implicit_kernel<T, kPooled>;
  const int bytes = implicit_shared(args.shape, sizeof(T));
  const cudaError_t error = allow_shared(kernel, bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(args.shape.n),
                  unsigned((args.shape.k + kImplicitOutputs - 1) / kImplicitOutputs));
  kernel<<<grid, kImplicitThreads, bytes, stream>>>(args, pool, words);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_conv2d_implicit(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                                   void* workspace, cudaStream_t stream) {
  return pool.pooled ? launch_implicit<T, true>(args, pool, workspace, stream)
                     : launch_implicit<T, false>(args, pool, workspace, stream);
}

}  // namespace ridgeline::cuda
