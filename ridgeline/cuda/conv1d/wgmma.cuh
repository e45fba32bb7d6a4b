#pragma once

#include "ridgeline/cuda/conv/nan_max.cuh"
#include "ridgeline/cuda/conv1d/conv1d.h"
#include "ridgeline/cuda/gemm/operand_tile.cuh"

// Implicit GEMM on Hopper. The rows of a tile and those its taps reach are in shared memory once,
// and each tap reads them from a different row on. One persistent block per SM walks over tiles.
// Three warpgroups multiply with wgmma, 64 rows x 256 channels each (a fourth warpgroup for loads
// would leave too few registers). One of their threads fills two ring buffers by TMA, two taps
// ahead: one of row tiles (a stage is 128 bytes of channels) and one of weights (a stage is one tap
// of those channels).
namespace ridgeline::cuda {

template <typename T, int kTaps_, int kPool_>
struct Conv1dTile {
  static constexpr int kTaps = kTaps_, kPool = kPool_;
  static constexpr int kConsumers = 3, kN = 256;
  static constexpr int kThreads = kConsumers * 128;
  // A warpgroup multiplies 64 rows. With a pool it keeps 63, so that no window spans two
  // warpgroups.
  static constexpr int kRows = 64 / kPool * kPool;
  static constexpr int kM = kConsumers * kRows;
  static constexpr int kInputRows = (kConsumers - 1) * kRows + 64 + kTaps - 1;
  static constexpr int kABytes = kInputRows * kStageRowBytes;
  static constexpr int kAStageBytes = (kABytes + 1023) / 1024 * 1024;
  static constexpr int kBStageBytes = kN * kStageRowBytes;
  // Two taps are loaded ahead, one is multiplied, and a slower warpgroup may still read one.
  static constexpr int kAStages = 2, kBStages = 4, kAhead = 2;
  // Results go through shared memory, 128 bytes of channels at a time, to be pooled and stored as
  // whole lines; 16 extra bytes per row put eight rows in different banks.
  static constexpr int kStorePitch = 144, kStoreBytes = 64 * kStorePitch;
  static constexpr int kStoreCols = 128 / int{sizeof(T)};
  static constexpr int kStoresBytes = kConsumers * kStoreBytes;
  static constexpr int kSmemBytes = 1024 + kAStages * kAStageBytes + kBStages * kBStageBytes +
                                    kStoresBytes + kN * int{sizeof(float)} + 256;
  static_assert(kSmemBytes <= 227 * 1024 && kInputRows <= 256);
};

// The element-wise maximum of 16 bytes of values; NaN if either is NaN.
template <typename T>
__device__ inline uint4 nan_max_packed(uint4 a, uint4 b) {
  uint4 result;
  if constexpr (sizeof(T) == 4) {
    const auto max = [](uint32_t x, uint32_t y) {
      return __float_as_uint(nan_max(__uint_as_float(x), __uint_as_float(y)));
    };
    result = {max(a.x, b.x), max(a.y, b.y), max(a.z, b.z), max(a.w, b.w)};
  } else {
    using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    const auto *pa = reinterpret_cast<const Pair*>(&a), *pb = reinterpret_cast<const Pair*>(&b);
    auto* to = reinterpret_cast<Pair*>(&result);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = __hmax2_nan(pa[i], pb[i]);
  }
  return result;
}

template <typename T>
__device__ inline void store_pair(char* to, float a, float b) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(a, b);
  } else if constexpr (std::is_same_v<T, __half>) {
    *reinterpret_cast<__half2*>(to) = __floats2half2_rn(a, b);
  } else {
    *reinterpret_cast<float2*>(to) = {a, b};
  }
}

struct Conv1dWork {
  int rows;  // rows of x, over all samples
  int out, tiles, column_tiles;
  int chunks;  // chunks of channels, 128 bytes each
  bool relu;
};

// One thread's view of both rings: what it loads next.
template <typename T, typename Tile>
struct Conv1dLoads {
  const CUtensorMap *map_x, *map_w;
  char *rows, *weights;  // the ring buffers
  Mbarrier *rows_full, *rows_empty, *weights_full, *weights_empty;
  StageCursor<Tile::kAStages> rows_at;
  StageCursor<Tile::kBStages> weights_at;
  int tile, chunk = 0, tap = 0;

  __device__ void next(const Conv1dWork& work) {
    if (tile >= work.tiles) return;
    const int column = tile % work.column_tiles * Tile::kN;
    if (tap == 0) {
      Mbarrier* full = &rows_full[rows_at.stage];
      mbarrier_wait(&rows_empty[rows_at.stage], rows_at.parity ^ 1);
      mbarrier_arrive_expect(full, Tile::kABytes);
      tma_load(rows + rows_at.stage * Tile::kAStageBytes, map_x, full, chunk * kStageDepth<T>,
               tile / work.column_tiles * Tile::kM);
      rows_at.next();
    }
    Mbarrier* full = &weights_full[weights_at.stage];
    mbarrier_wait(&weights_empty[weights_at.stage], weights_at.parity ^ 1);
    mbarrier_arrive_expect(full, Tile::kBStageBytes);
    tma_load(weights + weights_at.stage * Tile::kBStageBytes, map_w, full, chunk * kStageDepth<T>,
             tap * work.out + column);
    weights_at.next();
    if (++tap < Tile::kTaps) return;
    tap = 0;
    if (++chunk < work.chunks) return;
    chunk = 0;
    tile += gridDim.x;
  }
};

template <typename T, typename Tile>
__global__ __launch_bounds__(Tile::kThreads, 1) void conv1d_forward_wgmma_kernel(
    const __grid_constant__ CUtensorMap map_x, const __grid_constant__ CUtensorMap map_w,
    const Conv1dWork work, const MixedIn<T> bias, T* __restrict__ y) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kTaps = Tile::kTaps, kRows = Tile::kRows;
  constexpr int kAStages = Tile::kAStages, kBStages = Tile::kBStages;
  extern __shared__ char smem_raw[];
  char* smem = smem_raw + (-smem_address(smem_raw) & 1023);
  char* stores = smem + kAStages * Tile::kAStageBytes + kBStages * Tile::kBStageBytes;
  float* biases = reinterpret_cast<float*>(stores + Tile::kStoresBytes);
  Conv1dLoads<T, Tile> loads;
  loads.map_x = &map_x;
  loads.map_w = &map_w;
  loads.rows = smem;
  loads.weights = smem + kAStages * Tile::kAStageBytes;
  loads.rows_full = reinterpret_cast<Mbarrier*>(biases + Tile::kN);
  loads.rows_empty = loads.rows_full + kAStages;
  loads.weights_full = loads.rows_empty + kAStages;
  loads.weights_empty = loads.weights_full + kBStages;
  loads.tile = blockIdx.x;

  if (threadIdx.x == 0) {
    tma_prefetch_map(&map_x);
    tma_prefetch_map(&map_w);
    for (int s = 0; s < kAStages; ++s) {
      mbarrier_init(&loads.rows_full[s], 1);
      mbarrier_init(&loads.rows_empty[s], Tile::kConsumers);
    }
    for (int s = 0; s < kBStages; ++s) {
      mbarrier_init(&loads.weights_full[s], 1);
      mbarrier_init(&loads.weights_empty[s], Tile::kConsumers);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  const bool loader = threadIdx.x == 0;
  for (int i = 0; loader && i < Tile::kAhead; ++i) loads.next(work);

  const int consumer = threadIdx.x / 128, thread = threadIdx.x % 128;
  const int lane = thread % 32, warp = thread / 32;
  char* store = stores + consumer * Tile::kStoreBytes;
  const auto release = [&](Mbarrier* empty) {
    if (thread == 0) mbarrier_arrive(empty);
  };
  StageCursor<kAStages> rows_at;
  StageCursor<kBStages> weights_at;
  int bias_column = -1;
  for (int t = blockIdx.x; t < work.tiles; t += gridDim.x) {
    const int column = t % work.column_tiles * Tile::kN;
    if (column != bias_column) {  // uniform over all warpgroups
      __syncthreads();
      for (int j = threadIdx.x; j < Tile::kN; j += Tile::kThreads) {
        biases[j] = bias ? float(bias[column + j]) : 0.0f;
      }
      __syncthreads();
      bias_column = column;
    }
    float acc[Tile::kN / 2];
    Mbarrier *last_weights = nullptr, *last_rows = nullptr;
    bool accumulate = false;
    for (int chunk = 0; chunk < work.chunks; ++chunk, rows_at.next()) {
      mbarrier_wait(&loads.rows_full[rows_at.stage], rows_at.parity);
      const uint32_t a = smem_address(loads.rows + rows_at.stage * Tile::kAStageBytes) +
                         consumer * kRows * kStageRowBytes;
#pragma unroll 1
      for (int tap = 0; tap < kTaps; ++tap, weights_at.next()) {
        mbarrier_wait(&loads.weights_full[weights_at.stage], weights_at.parity);
        const uint32_t b = smem_address(loads.weights + weights_at.stage * Tile::kBStageBytes);
        wgmma_fence();
        // The swizzle is a function of the address, so a tile may begin at any row.
#pragma unroll
        for (int step = 0; step < kStepsPerStage; ++step) {
          const uint32_t at = step * (kStageRowBytes / kStepsPerStage);
          wgmma<T, false, false>(
              acc, wgmma_descriptor(a + tap * kStageRowBytes + at, 16, 8 * kStageRowBytes, 128),
              wgmma_descriptor(b + at, 16, 8 * kStageRowBytes, 128), accumulate || step > 0);
        }
        wgmma_commit();
        accumulate = true;
        // One tap's products stay in flight; those of the previous tap are complete.
        wgmma_wait<1>();
        if (last_weights != nullptr) release(last_weights);
        if (last_rows != nullptr) release(last_rows);
        last_rows = nullptr;
        last_weights = &loads.weights_empty[weights_at.stage];
        if (loader) loads.next(work);
      }
      last_rows = &loads.rows_empty[rows_at.stage];
    }
    wgmma_wait<0>();
    release(last_weights);
    release(last_rows);
    wgmma_keep(acc);

    constexpr int kOutRows = kRows / Tile::kPool, kCols = Tile::kStoreCols;
    const int first_row = (t / work.column_tiles * Tile::kConsumers + consumer) * kOutRows;
    const int out_rows = work.rows / Tile::kPool;
    const float least = work.relu ? 0.0f : -INFINITY;
    const int row = warp * 16 + lane / 4;
#pragma unroll
    for (int c = 0; c < Tile::kN / kCols; ++c) {
      named_barrier(1 + consumer, 128);  // the buffer has been read
#pragma unroll
      for (int j = 0; j < kCols / 8; ++j) {
        const int in_chunk = j * 8 + lane % 4 * 2;
        const float2 add = *reinterpret_cast<const float2*>(biases + c * kCols + in_chunk);
        const float* value = &acc[(c * kCols / 8 + j) * 4];
        char* to = store + row * Tile::kStorePitch + in_chunk * int{sizeof(T)};
        store_pair<T>(to, nan_max(value[0] + add.x, least), nan_max(value[1] + add.y, least));
        store_pair<T>(to + 8 * Tile::kStorePitch, nan_max(value[2] + add.x, least),
                      nan_max(value[3] + add.y, least));
      }
      named_barrier(1 + consumer, 128);
#pragma unroll
      for (int task = thread; task < kOutRows * 8; task += 128) {
        const int r = task / 8, part = task % 8;
        const char* from = store + r * Tile::kPool * Tile::kStorePitch + part * 16;
        uint4 best = *reinterpret_cast<const uint4*>(from);
#pragma unroll
        for (int k = 1; k < Tile::kPool; ++k) {
          best = nan_max_packed<T>(best,
                                   *reinterpret_cast<const uint4*>(from + k * Tile::kStorePitch));
        }
        if (first_row + r < out_rows) {
          T* to = y + int64_t(first_row + r) * work.out + column + c * kCols;
          *reinterpret_cast<uint4*>(to + part * (16 / int{sizeof(T)})) = best;
        }
      }
    }
  }
#else
  __trap();  // not compiled for sm_90a
#endif
}

// transposed[u, o, c] = w[o, c, u], rounded to the type that the tensor cores read.
template <typename T>
__global__ void conv1d_transpose_weights_kernel(const T* w, T* transposed, int channels, int out,
                                                int taps) {
  const int64_t count = int64_t(taps) * out * channels;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int c = int(i % channels), o = int(i / channels % out), u = int(i / channels / out);
    T value = w[(int64_t(o) * channels + c) * taps + u];
#if __CUDA_ARCH__ >= 800  // tf32
    if constexpr (sizeof(T) == 4) {
      uint32_t bits;
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
      value = __uint_as_float(bits);
    }
#endif
    transposed[i] = value;
  }
}

template <typename T, typename Tile>
std::function<cudaError_t(cudaStream_t)> prepare_conv1d_tile(const Conv1dArgs<T>& args,
                                                             void* workspace, int sms) {
  T* transposed = static_cast<T*>(workspace);
  constexpr int kDepth = kStageDepth<T>;
  const CUtensorMap map_x = make_tensor_map(args.x, int64_t{args.n} * args.pitch, args.channels,
                                            args.channels, Tile::kInputRows, kDepth);
  const CUtensorMap map_w =
      make_tensor_map(static_cast<const T*>(transposed), int64_t{args.taps} * args.out,
                      args.channels, args.channels, Tile::kN, kDepth);
  Conv1dWork work;
  work.rows = args.n * args.pitch;
  work.out = args.out;
  work.column_tiles = args.out / Tile::kN;
  work.tiles = (work.rows + Tile::kM - 1) / Tile::kM * work.column_tiles;
  work.chunks = args.channels / kDepth;
  work.relu = args.relu;
  const auto kernel = conv1d_forward_wgmma_kernel<T, Tile>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSmemBytes);
  return [=](cudaStream_t stream) {
    if (error != cudaSuccess) return error;
    conv1d_transpose_weights_kernel<T>
        <<<2 * sms, 256, 0, stream>>>(args.w, transposed, args.channels, args.out, args.taps);
    kernel<<<std::min(sms, work.tiles), Tile::kThreads, Tile::kSmemBytes, stream>>>(
        map_x, map_w, work, args.bias, args.y);
    return cudaGetLastError();
  };
}

}  // namespace ridgeline::cuda
