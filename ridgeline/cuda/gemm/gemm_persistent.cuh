#pragma once

#include "ridgeline/cuda/gemm/epilogue.cuh"
#include "ridgeline/cuda/gemm/launch.h"
#include "ridgeline/cuda/gemm/operand_tile.cuh"

// Large products on Hopper, warp-specialised. One persistent block per SM walks over tiles of D. A
// producer thread fills a ring buffer of stages by TMA; two consumer warpgroups multiply with wgmma
// and store by TMA.
namespace ridgeline::cuda {

// A block computes tiles of kM x kN of D.
template <int kM_, int kN_>
struct PersistentTile {
  static constexpr int kM = kM_, kN = kN_;
  static constexpr int kConsumers = 2;
  static constexpr int kConsumerRows = kM / kConsumers;
  static constexpr int kBlocks = kConsumerRows / 64;  // wgmma tiles per consumer
  static constexpr int kThreads = (kConsumers + 1) * 128;
  // Columns of an mn-major B are loaded in blocks of 64.
  static constexpr int kStageBytes = (kM + (kN + 63) / 64 * 64) * kStageRowBytes;
  // Two buffers of 64 rows x 128 bytes per consumer: one is filled while the other is stored.
  static constexpr int kStoreBytes = 64 * 128;
  static constexpr int kStoresBytes = kConsumers * 2 * kStoreBytes;
  static constexpr int kSmemLimit = 227 * 1024;  // per block on sm_90
  static constexpr int kAlignment = 1024;        // a 128-byte swizzle repeats after 1024 bytes
  static constexpr int kStages = (kSmemLimit - kAlignment - 256 - kStoresBytes) / kStageBytes;
  static constexpr int kSmemBytes = kAlignment + kStages * kStageBytes + kStoresBytes + 256;
  // setmaxnreg: 3 x 168 registers per thread at entry; the producer needs few.
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  static_assert(kStages >= 3 && kStages <= 15 && kM % (64 * kConsumers) == 0);
};

// The order of tiles: kTileGroup rows of tiles at a time, column by column, so that the tiles in
// flight cover a nearly square part of D and their operands stay in L2.
constexpr int kTileGroup = 8;

struct TileGrid {
  int rows, cols;  // in tiles

  __host__ __device__ int count() const { return rows * cols; }
  __device__ int2 at(int index) const {  // {row, col}
    const int per_group = kTileGroup * cols;
    const int first = index / per_group * kTileGroup;
    const int height = min(rows - first, kTileGroup);
    const int rest = index % per_group;
    return {first + rest % height, rest / height};
  }
};

// Writes 64 rows x 128 bytes of D, starting at column group `first` (accumulators of 8 columns),
// into `buffer` in the layout of the 128-byte swizzle.
template <typename Out, typename Epilogue, int kCount>
__device__ inline void stage_output(char* buffer, const float (&acc)[kCount], int first, int row0,
                                    int col0, int m, int n, const Epilogue& epilogue) {
  const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
  const int row = warp * 16 + lane / 4;  // and row + 8
  if constexpr (sizeof(Out) == 2) {
    // Lanes 0-15 address the rows of the left eight columns, lanes 16-31 those of the right.
    const int store_row = warp * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &acc[(first + j + i / 2) * 4 + i % 2 * 2];
        const int col = col0 + (j + i / 2) * 8 + lane % 4 * 2;
        packed[i] =
            pack_pair<Out>(finish(epilogue, row0 + row + i % 2 * 8, col, {pair[0], pair[1]}, m, n));
      }
      const int chunk = (j + lane / 16) ^ (store_row & 7);
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                       smem_address(buffer + store_row * 128 + chunk * 16)),
                   "r"(packed[0]), "r"(packed[1]), "r"(packed[2]), "r"(packed[3])
                   : "memory");
    }
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float* pair = &acc[(first + j) * 4 + i * 2];
        const int r = row + i * 8, col = j * 8 + lane % 4 * 2;
        const float2 value = finish(epilogue, row0 + r, col0 + col, {pair[0], pair[1]}, m, n);
        const int chunk = (col / 4) ^ (r & 7);
        *reinterpret_cast<float2*>(buffer + r * 128 + chunk * 16 + col % 4 * 4) = value;
      }
    }
  }
}

// Stores the columns of a tile that do not fill a row of a store buffer, those from accumulator
// `first` (of 8 columns) on, directly from registers.
template <typename Out, int kFirst, typename Epilogue, int kCount>
__device__ inline void store_rest(Out* d, int64_t ldd, const float (&acc)[kCount], int row0,
                                  int col0, int m, int n, const Epilogue& epilogue) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = row0 + threadIdx.x % 128 / 32 * 16 + lane / 4 + i * 8;
#pragma unroll
    for (int j = kFirst; j < kCount / 4; ++j) {
      const int col = col0 + j * 8 + lane % 4 * 2;
      // n is even: a row of D is a whole number of 16-byte units
      if (row >= m || col >= n) continue;
      const float2 value =
          finish(epilogue, row, col, {acc[j * 4 + i * 2], acc[j * 4 + i * 2 + 1]}, m, n);
      if constexpr (sizeof(Out) == 2) {
        *reinterpret_cast<uint32_t*>(d + row * ldd + col) = pack_pair<Out>(value);
      } else {
        *reinterpret_cast<float2*>(d + row * ldd + col) = value;
      }
    }
  }
}

template <typename In, typename Out, Major kA, Major kB, typename Tile, typename Epilogue>
__global__ __launch_bounds__(Tile::kThreads, 1) void gemm_wgmma_persistent_kernel(
    const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
    const __grid_constant__ CUtensorMap map_d, Out* d, int64_t ldd, int m, int n, int k,
    TileGrid grid, const Epilogue epilogue) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using ATile = OperandTile<In, kA, Tile::kM>;
  using BTile = OperandTile<In, kB, Tile::kN>;
  constexpr int kStages = Tile::kStages;

  extern __shared__ char smem_raw[];
  char* smem = smem_raw + (-smem_address(smem_raw) & (Tile::kAlignment - 1));
  char* stores = smem + kStages * Tile::kStageBytes;
  Mbarrier* full = reinterpret_cast<Mbarrier*>(stores + Tile::kStoresBytes);
  Mbarrier* empty = full + kStages;

  const int warpgroup = uniform_warpgroup();
  const int k_stages = (k + kStageDepth<In> - 1) / kStageDepth<In>;

  if (threadIdx.x == 0) {
    tma_prefetch_map(&map_a);
    tma_prefetch_map(&map_b);
    tma_prefetch_map(&map_d);
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], Tile::kConsumers);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  wait_for_previous_kernel();
  allow_next_kernel();

  StageCursor<kStages> cursor;
  if (warpgroup == 0) {  // producer
    give_registers<Tile::kProducerRegisters>();
    if (threadIdx.x == 0) {
      for (int index = blockIdx.x; index < grid.count(); index += gridDim.x) {
        const int2 tile = grid.at(index);
        const int row = tile.x * Tile::kM, col = tile.y * Tile::kN;
        for (int i = 0; i < k_stages; ++i, cursor.next()) {
          mbarrier_wait(&empty[cursor.stage], cursor.parity ^ 1);
          char* a = smem + cursor.stage * Tile::kStageBytes;
          char* b = a + ATile::kBytes;
          Mbarrier* barrier = &full[cursor.stage];
          mbarrier_arrive_expect(barrier, ATile::kBytes + BTile::kBytes);
          ATile::load(a, &map_a, barrier, row, i * kStageDepth<In>);
          BTile::load(b, &map_b, barrier, col, i * kStageDepth<In>);
        }
      }
    }
  } else {
    take_registers<Tile::kConsumerRegisters>();
    const int consumer = warpgroup - 1, thread = threadIdx.x % 128;
    const auto release = [&](int stage) {
      if (thread == 0) mbarrier_arrive(&empty[stage]);
    };
    char* buffers = stores + consumer * 2 * Tile::kStoreBytes;
    int buffer = 0;
    for (int index = blockIdx.x; index < grid.count(); index += gridDim.x) {
      float acc[Tile::kBlocks][Tile::kN / 2];
      int previous = -1;
      for (int i = 0; i < k_stages; ++i, cursor.next()) {
        mbarrier_wait(&full[cursor.stage], cursor.parity);
        char* stage = smem + cursor.stage * Tile::kStageBytes;
        if constexpr (std::is_same_v<In, float>) {
          round_stage_to_tf32<Tile::kStageBytes, Tile::kConsumers * 128>(stage, threadIdx.x - 128,
                                                                         1 + Tile::kConsumers);
        }
        const uint32_t a = smem_address(stage);
        multiply_stage<In, ATile, BTile>(acc, a + consumer * Tile::kConsumerRows * kStageRowBytes,
                                         a + ATile::kBytes, i > 0);
        // One stage's products stay in flight; those of the previous stage are complete.
        wgmma_wait<1>();
        if (previous >= 0) release(previous);
        previous = cursor.stage;
      }
      wgmma_wait<0>();
      release(previous);

      const int2 tile = grid.at(index);
      const int row = tile.x * Tile::kM + consumer * Tile::kConsumerRows;
      constexpr int kStoreCols = 128 / int{sizeof(Out)};
#pragma unroll
      for (int block = 0; block < Tile::kBlocks; ++block) {
        wgmma_keep(acc[block]);
#pragma unroll
        for (int c = 0; c < Tile::kN / kStoreCols; ++c, buffer ^= 1) {
          char* out = buffers + buffer * Tile::kStoreBytes;
          const int col = tile.y * Tile::kN + c * kStoreCols;
          // The store before the previous one has been read from the buffer.
          if (thread == 0) tma_store_wait_read<1>();
          named_barrier(1 + consumer, 128);
          stage_output<Out>(out, acc[block], c * kStoreCols / 8, row + block * 64, col, m, n,
                            epilogue);
          fence_async_proxy();
          named_barrier(1 + consumer, 128);
          if (thread == 0) {
            tma_store(&map_d, out, col, row + block * 64);
            tma_store_commit();
          }
        }
        if constexpr (Tile::kN % kStoreCols != 0) {
          store_rest<Out, Tile::kN / kStoreCols * kStoreCols / 8>(
              d, ldd, acc[block], row + block * 64, tile.y * Tile::kN, m, n, epilogue);
        }
      }
    }
    if (thread == 0) tma_store_wait<0>();
  }
#else
  __trap();  // not compiled for sm_90a: variants.cuh does not offer it
#endif
}

// A, B and D must satisfy tma_accepts, and a row of D must be a multiple of 16 bytes, because TMA
// writes whole 16-byte units and would write past the end of a shorter row.
template <typename In, typename Out, Major kA, Major kB, typename Tile, typename Epilogue>
PreparedGemm prepare_gemm_persistent(const GemmProblem& p, const Epilogue& epilogue,
                                     const GemmOptions& options) {
  const auto kernel = gemm_wgmma_persistent_kernel<In, Out, kA, kB, Tile, Epilogue>;
  const auto check = [&](cudaError_t error, const char* what) {
    check_gemm_call(error, what, p.m, p.n, p.k);
  };
  using ATile = OperandTile<In, kA, Tile::kM>;
  using BTile = OperandTile<In, kB, Tile::kN>;
  const CUtensorMap map_a = ATile::make_map(p.a, p.m, p.k, p.lda);
  const CUtensorMap map_b = BTile::make_map(p.b, p.n, p.k, p.ldb);
  const CUtensorMap map_d =
      make_tensor_map(static_cast<const Out*>(p.d), p.m, p.n, p.ldd, 64, 128 / int{sizeof(Out)});
  set_shared_memory(kernel, Tile::kSmemBytes, p);

  const TileGrid grid = {ceil_div(p.m, Tile::kM), ceil_div(p.n, Tile::kN)};
  int device = 0, sms = 0;
  check(cudaGetDevice(&device), "device");
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "device");
  const int blocks = std::min(sms, grid.count());
  const bool overlap = options.overlap_previous;
  const int m = p.m, n = p.n, k = p.k;
  const int64_t ldd = p.ldd;
  Out* d = static_cast<Out*>(p.d);
  return {fmt::format("wgmma_persistent_{}x{}", Tile::kM, Tile::kN), [=](cudaStream_t stream) {
            LaunchConfig launch(blocks, Tile::kThreads, Tile::kSmemBytes, 1, overlap);
            const cudaLaunchConfig_t config = launch.on(stream);
            check_gemm_call(cudaLaunchKernelEx(&config, kernel, map_a, map_b, map_d, d, ldd, m, n,
                                               k, grid, epilogue),
                            "launch", m, n, k);
          }};
}

}  // namespace ridgeline::cuda
