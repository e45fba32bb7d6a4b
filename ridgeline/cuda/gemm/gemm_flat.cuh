#pragma once

#include "ridgeline/cuda/device/mbarrier.cuh"
#include "ridgeline/cuda/gemm/direct_fragments.cuh"
#include "ridgeline/cuda/gemm/epilogue.cuh"
#include "ridgeline/cuda/gemm/launch.h"

// Products with short sums, k at most 64. Writing D dominates, so as many warps as fit write all of
// it at once. A warp takes 64 columns and kRows rows, `iterations` times.
namespace ridgeline::cuda {

template <int kRows_, int kQuads_, int kWarps_>
struct FlatTile {
  static constexpr int kRows = kRows_, kCols = 64, kQuads = kQuads_;
  static constexpr int kWarps = kWarps_, kThreads = 32 * kWarps;
};

template <typename T, typename Out, Major kA, Major kB, typename Tile, typename Epilogue>
__global__ __launch_bounds__(Tile::kThreads) void gemm_flat_kernel(
    const DirectOperand<T> a, const DirectOperand<T> b, int k, int col_tiles, int iterations,
    bool overlap, const TileOutput<Out> out, const Epilogue epilogue) {
#if __CUDA_ARCH__ >= 900
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int col0 = blockIdx.x % col_tiles * Tile::kCols;
  int row0 =
      (blockIdx.x / col_tiles * iterations * Tile::kWarps + int(threadIdx.x) / 32) * Tile::kRows;
  Fragments<T, kA, Tile::kRows, Tile::kQuads> rows;
  Fragments<T, kB, Tile::kCols, Tile::kQuads> cols;
  // With a branch the compiler computes the addresses before the wait and not after it, which saves
  // 0.2 us per step of a chain.
  if (overlap) wait_for_previous_kernel();
  rows.load(a, k, row0, 0);
  cols.load(b, k, col0, 0);
  allow_next_kernel();
  for (int iteration = 0; iteration < iterations; ++iteration) {
    float acc[Tile::kRows / 16][Tile::kCols / 8][4] = {};
    multiply_fragments<T>(acc, rows, cols);
    const int next = row0 + Tile::kWarps * Tile::kRows;
    if (iteration + 1 < iterations) rows.load(a, k, next, 0);
#pragma unroll
    for (int i = 0; i < Tile::kRows / 16 * 4; ++i) {
      const int h = i / 2 % 2, e = i % 2;
      float sum[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] = acc[i / 4][j][2 * h + e];
      finish_eight(sum, row0 + rows.line_of(g) + i / 4 * 2 + h, col0 + cols.line_of(2 * t + e), out,
                   epilogue);
    }
    row0 = next;
  }
#else
  __trap();  // variants.cuh offers it on sm_90 only
#endif
}

// A and B must satisfy direct_accepts; D may have any pitch.
template <typename T, typename Out, Major kA, Major kB, typename Tile, typename Epilogue>
PreparedGemm prepare_gemm_flat(const GemmProblem& p, int iterations, const Epilogue& epilogue,
                               const GemmOptions& options) {
  const auto kernel = gemm_flat_kernel<T, Out, kA, kB, Tile, Epilogue>;
  const int m = p.m, n = p.n, k = p.k;
  const DirectOperand<T> a = {static_cast<const T*>(p.a), p.lda, m};
  const DirectOperand<T> b = {static_cast<const T*>(p.b), p.ldb, n};
  const TileOutput<Out> out = {static_cast<Out*>(p.d), p.ldd, m, n, false};
  const int col_tiles = ceil_div(n, Tile::kCols);
  const int blocks = ceil_div(m, Tile::kRows * Tile::kWarps * iterations) * col_tiles;
  const bool overlap = options.overlap_previous;
  return {fmt::format("direct_flat_{}x{}_{}iterations", Tile::kRows * Tile::kWarps, Tile::kCols,
                      iterations),
          [=](cudaStream_t stream) {
            LaunchConfig launch(blocks, Tile::kThreads, 0, 1, overlap);
            const cudaLaunchConfig_t config = launch.on(stream);
            check_gemm_call(cudaLaunchKernelEx(&config, kernel, a, b, k, col_tiles, iterations,
                                               overlap, out, epilogue),
                            "launch", m, n, k);
          }};
}

}  // namespace ridgeline::cuda
