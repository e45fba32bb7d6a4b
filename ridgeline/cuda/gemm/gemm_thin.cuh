#pragma once

#include "ridgeline/cuda/device/cluster_handover.cuh"
#include "ridgeline/cuda/gemm/direct_fragments.cuh"
#include "ridgeline/cuda/gemm/epilogue.cuh"
#include "ridgeline/cuda/gemm/launch.h"

// Few columns, at most 64, and little of everything: a block takes kRows rows and all columns, its
// warps share out k in turns, and their sums meet in shared memory. `split` blocks of a cluster may
// share out k likewise; each then finishes its part of the tile. Parts are added in a fixed order.
namespace ridgeline::cuda {

// kAhead fragments of 32 kQuads of k are under way in each warp.
template <int kRows_, int kCols_, int kQuads_, int kAhead_, int kWarps_, int kBlocksPerSm_>
struct ThinTile {
  static constexpr int kRows = kRows_, kCols = kCols_, kQuads = kQuads_, kAhead = kAhead_;
  static constexpr int kWarps = kWarps_, kThreads = 32 * kWarps, kBlocksPerSm = kBlocksPerSm_;
  static constexpr int kDepth = 32 * kQuads;
  static constexpr int kPairs = kRows * kCols / 2;  // of neighbours in D
  static constexpr int kPitch = kCols + 2;          // of partial sums
  static constexpr int kPartFloats = kRows * kPitch;
  static constexpr int smem_bytes(int split) {
    return (kWarps * kPartFloats + (split > 1 ? 2 * (kPairs + split) : 0)) * int{sizeof(float)};
  }
};

constexpr int kMostThinParts = 2;  // that a cluster shares k out to

// {row, column} in the tile of the first of pair `index`.
template <typename Tile>
__device__ inline int2 place_of_pair(int index, bool transposed) {
  constexpr int kDown = Tile::kRows / 2, kAcross = Tile::kCols / 2;
  return transposed ? int2{index % kDown * 2, index / kDown}
                    : int2{index / kAcross, index % kAcross * 2};
}

template <typename Tile>
__device__ inline float2 sum_over_warps(const float* parts, int2 place, bool transposed) {
  float2 sum = {};
  const float* part = parts + place.x * Tile::kPitch + place.y;
  for (int w = 0; w < Tile::kWarps; ++w, part += Tile::kPartFloats) {
    sum.x += part[0], sum.y += part[transposed ? Tile::kPitch : 1];
  }
  return sum;
}

template <typename T, typename Out, Major kA, Major kB, typename Tile, typename Epilogue>
__global__ __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm) void gemm_thin_kernel(
    const DirectOperand<T> a, const DirectOperand<T> b, int k, int split, bool early_a,
    const TileOutput<Out> out, const Epilogue epilogue) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) float parts[];
  __shared__ Mbarrier arrived;  // where a cluster shares k out: sums from all its blocks
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int rank = blockIdx.x % split, row0 = blockIdx.x / split * Tile::kRows;
  const int share = (Tile::kPairs + split - 1) / split;  // of pairs, to a block of a cluster
  const int own = min(share, Tile::kPairs - rank * share);
  if (split > 1) {
    if (threadIdx.x == 0) {
      mbarrier_init(&arrived, 1);
      mbarrier_init_fence();
      mbarrier_arrive_expect(&arrived, own * split * int{sizeof(float2)});
    }
    cluster_arrive_relaxed();  // waited for below: nobody writes to a block that has not begun
  }

  Fragments<T, kA, Tile::kRows, Tile::kQuads> rows[Tile::kAhead];
  Fragments<T, kB, Tile::kCols, Tile::kQuads> cols[Tile::kAhead];
  const int step = split * Tile::kWarps * Tile::kDepth;
  int k0 = (rank * Tile::kWarps + warp) * Tile::kDepth;
  if (!early_a) wait_for_previous_kernel();
#pragma unroll
  for (int d = 0; d < Tile::kAhead; ++d) rows[d].load(a, k, row0, k0 + d * step);
  if (early_a) wait_for_previous_kernel();
#pragma unroll
  for (int d = 0; d < Tile::kAhead; ++d) cols[d].load(b, k, 0, k0 + d * step);
  allow_next_kernel();

  float acc[Tile::kRows / 16][Tile::kCols / 8][4] = {};
  for (; k0 < k; k0 += Tile::kAhead * step) {
#pragma unroll
    for (int d = 0; d < Tile::kAhead; ++d) {
      if (k0 + d * step >= k) break;
      multiply_fragments<T>(acc, rows[d], cols[d]);
      rows[d].load(a, k, row0, k0 + (d + Tile::kAhead) * step);
      cols[d].load(b, k, 0, k0 + (d + Tile::kAhead) * step);
    }
  }

  float* mine = parts + warp * Tile::kPartFloats;
#pragma unroll
  for (int i = 0; i < Tile::kRows / 16 * 4; ++i) {
    const int h = i / 2 % 2, e = i % 2;
    float* at =
        mine + (rows[0].line_of(g) + i / 4 * 2 + h) * Tile::kPitch + cols[0].line_of(2 * t + e);
#pragma unroll
    for (int j = 0; j < Tile::kCols / 8; j += 2) {
      *reinterpret_cast<float2*>(at + j) =
          float2{acc[i / 4][j][2 * h + e], acc[i / 4][j + 1][2 * h + e]};
    }
  }
  __syncthreads();

  if (split == 1) {
    for (int index = threadIdx.x; index < Tile::kPairs; index += Tile::kThreads) {
      const int2 place = place_of_pair<Tile>(index, out.transposed);
      finish_pair(sum_over_warps<Tile>(parts, place, out.transposed), row0 + place.x, place.y, out,
                  epilogue);
    }
    return;
  }
  float2* received = reinterpret_cast<float2*>(parts + Tile::kWarps * Tile::kPartFloats);
  cluster_wait();  // every block has begun
  for (int index = threadIdx.x; index < Tile::kPairs; index += Tile::kThreads) {
    const int2 place = place_of_pair<Tile>(index, out.transposed);
    const uint32_t at = smem_address(received + rank * share + index % share);
    const int owner = index / share;
    store_async_8(cluster_address(at, owner), sum_over_warps<Tile>(parts, place, out.transposed),
                  cluster_address(smem_address(&arrived), owner));
  }
  mbarrier_wait(&arrived, 0);  // all parts are here; nobody touches another's memory after that
  for (int i = threadIdx.x; i < own; i += Tile::kThreads) {
    float2 sum = {};
    for (int part = 0; part < split; ++part) {
      sum.x += received[part * share + i].x, sum.y += received[part * share + i].y;
    }
    const int2 place = place_of_pair<Tile>(rank * share + i, out.transposed);
    finish_pair(sum, row0 + place.x, place.y, out, epilogue);
  }
#else
  __trap();  // variants.cuh offers it to sm_90 only
#endif
}

// A and B must suit direct_accepts; D may have any pitch. `swapped`: as in prepare_gemm_split.
template <typename T, typename Out, Major kA, Major kB, typename Tile, typename Epilogue>
PreparedGemm prepare_gemm_thin(const GemmProblem& p, int split, bool swapped,
                               const Epilogue& epilogue, const GemmOptions& options) {
  const auto kernel = gemm_thin_kernel<T, Out, kA, kB, Tile, Epilogue>;
  const int m = p.m, n = p.n, k = p.k;
  const int smem = Tile::smem_bytes(split);
  set_shared_memory(kernel, Tile::smem_bytes(kMostThinParts), p);
  const DirectOperand<T> a = {static_cast<const T*>(p.a), p.lda, m};
  const DirectOperand<T> b = {static_cast<const T*>(p.b), p.ldb, n};
  const TileOutput<Out> out = {static_cast<Out*>(p.d), p.ldd, swapped ? n : m, swapped ? m : n,
                               swapped};
  const int blocks = ceil_div(m, Tile::kRows) * split;
  const bool overlap = options.overlap_previous;
  const bool early = overlap && (swapped ? options.early_b : options.early_a);
  return {fmt::format("direct_thin{}_{}x{}_{}ahead{}", split, Tile::kRows, Tile::kCols,
                      Tile::kAhead, swapped ? "_swap" : ""),
          [=](cudaStream_t stream) {
            LaunchConfig launch(blocks, Tile::kThreads, smem, split, overlap);
            const cudaLaunchConfig_t config = launch.on(stream);
            check_gemm_call(
                cudaLaunchKernelEx(&config, kernel, a, b, k, split, early, out, epilogue), "launch",
                m, n, k);
          }};
}

}  // namespace ridgeline::cuda
