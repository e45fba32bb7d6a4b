#pragma once

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/conv/window_store.cuh"
#include "ridgeline/cuda/device/async_copy.cuh"

namespace ridgeline::cuda {

// A block takes one image by 32 or 64 output channels of a group, with 256 pixels per pass. Four
// warps take 64 pixels by 32 channels each. Four more take the other 32 channels, or the other half
// of k: with fewer pixels per warp, loading the factors from shared memory would take longer than
// the products. The rows of the filters arrive through a ring buffer.
constexpr int kImplicitThreads = 256, kImplicitWarps = kImplicitThreads / 32;
constexpr int kRowWarps = kImplicitWarps / 2, kRowTiles = 4;
constexpr int kColumnTiles = 4, kImplicitOutputs = kColumnTiles * 8;  // per warp
constexpr int kPassTiles = kRowWarps * kRowTiles, kPassPixels = kPassTiles * 16, kRing = 3;

// The map of a group's channels in shared memory, channels-last, with a border of zeros.
struct ImplicitMap {
  int c, rows, columns;  // c is padded to whole chunks
  int pitch;             // bytes between rows
  int shift;             // selects the address bits that swizzle a pixel's chunks

  __host__ __device__ ImplicitMap(const ImplicitShape& shape, int width) {
    const int whole = 16 / width;
    c = (shape.group_c() + whole - 1) / whole * whole;
    rows = shape.rows();
    columns = shape.columns();
    pitch = columns * c * width;
    shift = c * width % 256 == 0 ? 8 : 7;
  }
  // Swizzles chunks of 16 bytes within lines of 128, so that neighbouring pixels, one or two lines
  // apart, are in different banks.
  __device__ uint32_t swizzled(uint32_t bytes) const { return bytes ^ ((bytes >> shift & 7) << 4); }
  // 128 more bytes, because the last steps of k read past the last pixel (multiplied by zero).
  __host__ __device__ int bytes() const { return (rows * pitch + 128 + 127) / 128 * 128; }
};

__host__ __device__ constexpr int implicit_steps(int filter, int c, int width) {
  return (filter * c * width + kStepBytes - 1) / kStepBytes;
}

// The number of blocks of `outputs` output channels over all groups.
__host__ __device__ inline int group_blocks(const ImplicitShape& shape, int outputs) {
  return (shape.group_k() + outputs - 1) / outputs;
}

// packed_filters[group][block][u][step][tile pair][lane][tile of the pair][half]: the B operand in
// the order in which lanes load it. The work is split over `threads` threads; this one is `thread`.
template <typename T>
__device__ void arrange_weights(const ImplicitShape& shape, const T* w, bool flipped,
                                uint32_t* packed_filters, int thread, int threads) {
  const ImplicitMap map(shape, sizeof(T));
  constexpr int kPairs = kColumnTiles / 2;
  const int steps = implicit_steps(shape.filter, map.c, sizeof(T));
  const int blocks = group_blocks(shape, kImplicitOutputs);
  const int count = shape.groups * blocks * shape.filter * steps * kPairs * 128;
  const int inputs = shape.group_c(), outputs = shape.group_k();
  for (int i = thread; i < count; i += threads) {
    const int half = i % 2, lane = i / 4 % 32, tile = i / 128 % kPairs * 2 + i / 2 % 2;
    const int step = i / 128 / kPairs % steps, u = i / 128 / kPairs / steps % shape.filter;
    const int block = i / 128 / kPairs / steps / shape.filter, group = block / blocks;
    const int o = block % blocks * kImplicitOutputs + tile * 8 + lane / 4;  // within the group
    T values[Factor<T>::kPerWord];
#pragma unroll
    for (int e = 0; e < Factor<T>::kPerWord; ++e) {
      const int k = (step * kStepBytes + half * 16 + lane % 4 * 4) / int(sizeof(T)) + e;
      const int v = k / map.c, c = k % map.c, last = shape.filter - 1;
      const bool inside = v < shape.filter && c < inputs && o < outputs;
      const int64_t plane = flipped ? (int64_t(group) * inputs + c) * outputs + o
                                    : (int64_t(group) * outputs + o) * inputs + c;
      const int64_t at = flipped ? (plane * shape.filter + last - u) * shape.filter + last - v
                                 : (plane * shape.filter + u) * shape.filter + v;
      values[e] = inside ? Factor<T>::round(float(w[at])) : T(0.0f);
    }
    packed_filters[i] = *reinterpret_cast<uint32_t*>(values);
  }
}

template <typename T>
__global__ void arrange_weights_kernel(ImplicitShape shape, const T* w, bool flipped,
                                       uint32_t* packed_filters) {
#if __CUDA_ARCH__ >= 800  // tf32
  arrange_weights(shape, w, flipped, packed_filters, int(blockIdx.x * blockDim.x + threadIdx.x),
                  int(gridDim.x * blockDim.x));
#endif
}

// A chunk of a pixel's channels.
template <typename T>
struct alignas(16) MapChunk {
  static constexpr int kCount = 16 / sizeof(T);
  T values[kCount];
};

__device__ inline void zero_map(const ImplicitMap& map, std::byte* to) {
  for (int at = threadIdx.x * 16; at < map.bytes(); at += kImplicitThreads * 16) {
    *reinterpret_cast<uint4*>(to + at) = uint4{0, 0, 0, 0};
  }
  __syncthreads();
}

// Copies a group of image i from channels-first global memory to the map. A thread takes one chunk
// of a pixel's channels, so that it stores whole chunks, and has the loads of a few chunks in
// flight.
template <typename T>
__device__ void stage_map(const ImplicitShape& shape, const ImplicitMap& map, const T* x, int64_t i,
                          int group, std::byte* to) {
  using Chunk = MapChunk<T>;
  constexpr int kCount = Chunk::kCount, kAhead = 32 / kCount;
  zero_map(map, to);
  const int w = shape.w, pixels = shape.h * w, items = pixels * (map.c / kCount);
  const int channels = shape.group_c();
  x += (i * shape.c + group * channels) * pixels;
  for (int first = threadIdx.x; first < items; first += kAhead * kImplicitThreads) {
    Chunk chunks[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int item = min(first + a * kImplicitThreads, items - 1), chunk = item / pixels;
      const T* from = x + chunk * kCount * pixels + item % pixels;
      const int here = min(kCount, channels - chunk * kCount);
#pragma unroll
      for (int e = 0; e < kCount; ++e) chunks[a].values[e] = from[min(e, here - 1) * pixels];
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int item = first + a * kImplicitThreads;
      if (item >= items) break;
      const int chunk = item / pixels, at = item % pixels, here = channels - chunk * kCount;
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        T& value = chunks[a].values[e];
        value = e < here ? Factor<T>::round(float(value)) : T(0.0f);
      }
      const int row = at / w * shape.spread + shape.pad, column = at % w * shape.spread + shape.pad;
      const uint32_t offset = row * map.pitch + (column * map.c + chunk * kCount) * int(sizeof(T));
      *reinterpret_cast<Chunk*>(to + map.swizzled(offset)) = chunks[a];
    }
  }
}

// Copies an image of one group that is already channels-last and rounded, with map.c
// channels.
template <typename T>
__device__ void copy_map(const ImplicitShape& shape, const ImplicitMap& map, const T* x, int64_t i,
                         std::byte* to) {
  zero_map(map, to);
  // Chunks per row of the image.
  const int chunks = map.c * int(sizeof(T)) / 16, row = shape.w * chunks;
  const auto* from = reinterpret_cast<const std::byte*>(x) + i * shape.h * row * 16;
  for (int at = threadIdx.x; at < shape.h * row; at += kImplicitThreads) {
    const uint32_t offset =
        (at / row + shape.pad) * map.pitch + (shape.pad * chunks + at % row) * 16;
    copy_async_16(to + map.swizzled(offset), from + int64_t(at) * 16);
  }
}

// Maps rows of the matrix A to outputs. Plain: pixels in order. Pooled: two tiles hold eight
// windows so that one thread holds the four pixels of a window: rows g and g + 8 of the first tile
// are its upper pixels, and those of the second tile its lower ones.
template <bool kPooled>
struct ImplicitRows {
  int out_w, count;  // count: of outputs, or of windows

  __device__ ImplicitRows(const ImplicitShape& shape)
      : out_w(kPooled ? shape.out_w() / 2 : shape.out_w()),
        count((kPooled ? shape.out_h() / 2 : shape.out_h()) * out_w) {}
  // The position in the image of the output in row `row` of tile `tile`.
  __device__ int2 at(int tile, int row) const {
    const int which = kPooled ? tile / 2 * 8 + row % 8 : tile * 16 + row;
    const int index = min(which, count - 1), y = index / out_w, x = index % out_w;
    return kPooled ? int2{2 * y + tile % 2, 2 * x + row / 8} : int2{y, x};
  }
  __device__ int first(int tile) const { return kPooled ? tile / 2 * 8 : tile * 16; }
};

// Bytes of one row of the filters.
inline int implicit_stage(const ImplicitShape& shape, int width) {
  return implicit_steps(shape.filter, ImplicitMap(shape, width).c, width) * kColumnTiles / 2 * 512;
}

// Shared memory holds the biases, the map and the ring buffer; the sums of a pass reuse the ring.
// `wide`: 64 channels per block.
constexpr int kBiasBytes = 2 * kImplicitOutputs * 4;
inline int implicit_shared(const ImplicitShape& shape, int width, bool wide) {
  const int times = wide ? 2 : 1, ring = kRing * implicit_stage(shape, width) * times;
  const int sums = kImplicitOutputs * times * sums_pitch(kPassPixels) * 4;
  return kBiasBytes + ImplicitMap(shape, width).bytes() + (ring > sums ? ring : sums);
}

inline bool implicit_wide(const ImplicitShape& shape, int width, size_t shared_memory) {
  return shape.group_k() > kImplicitOutputs &&
         size_t(implicit_shared(shape, width, true)) <= shared_memory;
}

// A warp's factors for one step of k.
struct WarpFactors {
  uint32_t a[kRowTiles][4];
  uint4 b[kColumnTiles / 2];

  // row: the addresses of the tiles' rows in the map; filters: this thread's first.
  __device__ void load(const ImplicitMap& map, uint32_t base, const uint32_t (&row)[kRowTiles],
                       const uint4* filters, int step) {
    constexpr int kPairs = kColumnTiles / 2;
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) b[pair] = filters[32 * (step * kPairs + pair)];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      load_matrices(a[m], base + map.swizzled(row[m] + step * kStepBytes));
    }
  }
};

// The sums of a warp over rows of a filter, in one pass.
template <typename T>
struct WarpSums {
  float acc[kRowTiles][kColumnTiles][4];

  // Adds steps `first`, first + by, and so on of a row of the filter. Each step is loaded while the
  // previous one is multiplied, because there are too few warps to hide the loads.
  __device__ void add(const ImplicitMap& map, uint32_t base, const uint32_t (&row)[kRowTiles],
                      const std::byte* filters, int first, int by, int steps) {
    const auto* b = reinterpret_cast<const uint4*>(filters) + threadIdx.x % 32;
    if (first >= steps) return;
    WarpFactors now, next;
    now.load(map, base, row, b, first);
#pragma unroll 2
    for (int s = first; s < steps; s += by) {
      next.load(map, base, row, b, s + by < steps ? s + by : s);
#pragma unroll
      for (int pair = 0; pair < kColumnTiles / 2; ++pair) {
        const uint4& f = now.b[pair];
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          Factor<T>::mma(acc[m][2 * pair], now.a[m], f.x, f.y);
          Factor<T>::mma(acc[m][2 * pair + 1], now.a[m], f.z, f.w);
        }
      }
      now = next;
    }
  }
  template <bool kAdds>
  __device__ void put(float* sums, int pitch) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        put_sums<kAdds>(acc[m][j], sums + j * 8 * pitch + m * 16, pitch);
      }
    }
  }
};

template <typename T, bool kPooled, bool kWide>
__global__ void __launch_bounds__(kImplicitThreads, 1)
    conv2d_implicit_kernel(ImplicitArgs<T> args, PooledOutput<T> pool,
                           const uint32_t* packed_filters) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) std::byte shared[];
  auto* biases = reinterpret_cast<float*>(shared);
  std::byte* memory = shared + kBiasBytes;
  const ImplicitShape& shape = args.shape;
  const ImplicitMap map(shape, sizeof(T));
  constexpr int kBlocks = kWide ? 2 : 1, kOutputs = kBlocks * kImplicitOutputs;
  const int steps = implicit_steps(shape.filter, map.c, sizeof(T));
  const int stage = steps * kColumnTiles / 2 * 512;  // bytes of a row of the filters of 32 channels
  const int shares = group_blocks(shape, kOutputs), group = int(blockIdx.y) / shares;
  const int share = int(blockIdx.y) % shares, left = shape.group_k() - share * kOutputs;
  const int o0 = group * shape.group_k() + share * kOutputs, count = min(kOutputs, left);
  const int blocks = min(kBlocks, (left + kImplicitOutputs - 1) / kImplicitOutputs);
  std::byte* ring = memory + map.bytes();
  const int64_t before = group * group_blocks(shape, kImplicitOutputs) + share * kBlocks;
  const auto* filters =
      reinterpret_cast<const std::byte*>(packed_filters) + before * shape.filter * stage;
  const auto fetch = [&](int u) {  // commits a group of copies even past the last row
    std::byte* to = ring + u % kRing * kBlocks * stage;
    for (int block = 0; u < shape.filter && block < blocks; ++block) {
      const std::byte* from = filters + int64_t(block * shape.filter + u) * stage;
      for (int at = threadIdx.x * 16; at < stage; at += kImplicitThreads * 16) {
        copy_async_16(to + block * stage + at, from + at);
      }
    }
    copy_async_commit();
  };

  const int64_t i = blockIdx.x;
  stage_biases<kOutputs>(args.b, o0, o0 + count, biases);
  if (args.last) {
    copy_map<T>(shape, map, args.x, i, memory);
  } else {
    stage_map<T>(shape, map, args.x, i, group, memory);
  }
  fetch(0), fetch(1);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row_warp = warp % kRowWarps, half = warp / kRowWarps;
  const ImplicitRows<kPooled> rows(shape);
  const uint32_t base = shared_address(memory);
  const BlockOutput<T> out{shape, biases, args.y, i, o0, count};
  constexpr int kPitch = sums_pitch(kPassPixels);

  for (int pass = 0; rows.first(pass * kPassTiles) < rows.count; ++pass) {
    const int tile = pass * kPassTiles + row_warp * kRowTiles;
    uint32_t row[kRowTiles];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const int2 at = rows.at(tile + m, lane % 16);
      row[m] = (at.x * map.pitch + at.y * map.c * int(sizeof(T))) * shape.stride + lane / 16 * 16;
    }
    const bool works = rows.first(tile) < rows.count && (!kWide || half < blocks);
    WarpSums<T> warp_sums{};
#pragma unroll 1
    for (int u = 0; u < shape.filter; ++u) {
      copy_async_wait<1>();
      __syncthreads();  // row u has arrived, and all threads are done with row u - 1
      fetch(u + 2);
      if (works) {
        const std::byte* filter = ring + (u % kRing * kBlocks + (kWide ? half : 0)) * stage;
        warp_sums.add(map, base, row, filter, kWide ? 0 : half, kWide ? 1 : 2, steps);
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) row[m] += map.pitch;
    }
    copy_async_wait<0>();
    __syncthreads();  // all threads are done with the ring
    auto* sums = reinterpret_cast<float*>(ring);
    float* mine = sums + (kWide ? half * kImplicitOutputs * kPitch : 0) + row_warp * kRowTiles * 16;
    if (kWide || half == 1) warp_sums.template put<false>(mine, kPitch);
    __syncthreads();
    if constexpr (!kWide) {
      if (half == 0) warp_sums.template put<true>(mine, kPitch);
      __syncthreads();
    }
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

template <typename T, bool kPooled, bool kWide>
cudaError_t launch_implicit_as(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                               const uint32_t* packed_filters, cudaStream_t stream) {
  const auto kernel = conv2d_implicit_kernel<T, kPooled, kWide>;
  const int bytes = implicit_shared(args.shape, sizeof(T), kWide);
  const cudaError_t error = allow_shared(kernel, bytes);
  if (error != cudaSuccess) return error;
  constexpr int kOutputs = kImplicitOutputs * (kWide ? 2 : 1);
  const dim3 grid(unsigned(args.shape.n),
                  unsigned(args.shape.groups * group_blocks(args.shape, kOutputs)));
  kernel<<<grid, kImplicitThreads, size_t(bytes), stream>>>(args, pool, packed_filters);
  return cudaGetLastError();
}

// packed_filters: the filters in the layout above.
template <typename T>
cudaError_t launch_implicit(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                            const uint32_t* packed_filters, cudaStream_t stream) {
  size_t shared = 0;
  const cudaError_t error = shared_of_block(shared);
  if (error != cudaSuccess) return error;
  const bool wide = implicit_wide(args.shape, sizeof(T), shared);
  const auto launch =
      pool.pooled
          ? (wide ? launch_implicit_as<T, true, true> : launch_implicit_as<T, true, false>)
          : (wide ? launch_implicit_as<T, false, true> : launch_implicit_as<T, false, false>);
  return launch(args, pool, packed_filters, stream);
}

template <typename T>
cudaError_t launch_conv2d_implicit(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                                   void* workspace, cudaStream_t stream) {
  auto* packed_filters = static_cast<uint32_t*>(workspace);
  arrange_weights_kernel<T>
      <<<128, 256, 0, stream>>>(args.shape, args.w, args.flipped, packed_filters);
  return launch_implicit<T>(args, pool, packed_filters, stream);
}

}  // namespace ridgeline::cuda
