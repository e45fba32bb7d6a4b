#pragma once

#include <algorithm>

#include "ridgeline/cuda/plain/accumulate.cuh"
#include "ridgeline/cuda/plain/gemm.h"

namespace ridgeline::cuda {

constexpr int kGemmTile = 64;
constexpr int kGemmThreads = 256;  // 16 x 16, each with 4 x 4 sums of a tile
constexpr int kGemmChunk = 4;      // neighbouring sums of a thread: one 16-byte read of fp32

// Loads a tile of an operand, kTile rows by kDepth of k, into registers; zeros outside the matrix.
//   kAlongK: element (row, k) is p[row * pitch + k]; otherwise p[k * pitch + row].
template <typename T, int kTile, int kDepth, bool kAlongK>
struct TileFetch {
  using A = Accumulated<T>;
  static constexpr int kLoads = kTile * kDepth / kGemmThreads;
  A values[kLoads];

  static __device__ int row(int i) {
    const int at = int(threadIdx.x) + i * kGemmThreads;
    return kAlongK ? at / kDepth : at % kTile;
  }
  static __device__ int depth(int i) {
    const int at = int(threadIdx.x) + i * kGemmThreads;
    return kAlongK ? at % kDepth : at / kTile;
  }

  __device__ void load(const T* p, int64_t pitch, int row0, int rows, int k0, int k_end) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int r = row0 + row(i), k = k0 + depth(i);
      const bool inside = r < rows && k < k_end;
      values[i] = inside ? A(p[kAlongK ? r * pitch + k : k * pitch + r]) : A(0);
    }
  }
  __device__ void store(A (*tile)[kTile + kGemmChunk]) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) tile[depth(i)][row(i)] = values[i];
  }
};

// The position in the tile of sum (i) of a thread: chunks of four, 64 apart.
__device__ inline int gemm_place(int thread, int i) {
  return i / kGemmChunk * 16 * kGemmChunk + thread * kGemmChunk + i % kGemmChunk;
}

// D[m, n] = sum over k of A[m, k] B[k, n]; each sum is passed to epilogue(row, col, sum). Blocks
// along y split k, `k_span` each; their sums then go to partial[split][m][n] instead. With
// kSumRows, the sum over k of A[row, k] goes to epilogue.row_sum(row, sum), or behind the partial
// sums.
template <typename T, int kTile, int kDepth, bool kAAlongK, bool kBAlongK, bool kSumRows,
          typename Epilogue>
__global__ void __launch_bounds__(kGemmThreads)
    gemm_tiled_kernel(const T* a, int64_t a_pitch, const T* b, int64_t b_pitch, int m, int n, int k,
                      int k_span, Epilogue epilogue, Accumulated<T>* partial) {
  using A = Accumulated<T>;
  constexpr int kSide = kTile / 16;
  __shared__ __align__(16) A a_tile[kDepth][kTile + kGemmChunk];
  __shared__ __align__(16) A b_tile[kDepth][kTile + kGemmChunk];

  const int tiles_n = (n + kTile - 1) / kTile;
  const int row0 = int(blockIdx.x) / tiles_n * kTile, col0 = int(blockIdx.x) % tiles_n * kTile;
  const int k_begin = int(blockIdx.y) * k_span, k_end = min(k, k_begin + k_span);
  const int ty = int(threadIdx.x) / 16, tx = int(threadIdx.x) % 16;
  const bool sums_rows = kSumRows && col0 == 0 && threadIdx.x < kTile;

  TileFetch<T, kTile, kDepth, kAAlongK> a_fetch;
  TileFetch<T, kTile, kDepth, kBAlongK> b_fetch;
  A sum[kSide][kSide] = {};
  A row_sum = A(0);
  a_fetch.load(a, a_pitch, row0, m, k_begin, k_end);
  b_fetch.load(b, b_pitch, col0, n, k_begin, k_end);
  for (int k0 = k_begin; k0 < k_end; k0 += kDepth) {
    a_fetch.store(a_tile);
    b_fetch.store(b_tile);
    __syncthreads();
    if (k0 + kDepth < k_end) {  // loads are in flight while this tile is computed
      a_fetch.load(a, a_pitch, row0, m, k0 + kDepth, k_end);
      b_fetch.load(b, b_pitch, col0, n, k0 + kDepth, k_end);
    }
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      A left[kSide], right[kSide];
#pragma unroll
      for (int i = 0; i < kSide; ++i) left[i] = a_tile[d][gemm_place(ty, i)];
#pragma unroll
      for (int j = 0; j < kSide; ++j) right[j] = b_tile[d][gemm_place(tx, j)];
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) sum[i][j] = fma(left[i], right[j], sum[i][j]);
      }
    }
    if (sums_rows) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) row_sum += a_tile[d][threadIdx.x];
    }
    __syncthreads();  // all threads have read the tile before the next one overwrites it
  }

  const bool split = gridDim.y > 1;
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    const int row = row0 + gemm_place(ty, i);
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      const int col = col0 + gemm_place(tx, j);
      if (row >= m || col >= n) continue;
      if (split) {
        partial[(int64_t(blockIdx.y) * m + row) * n + col] = sum[i][j];
      } else {
        epilogue(row, col, sum[i][j]);
      }
    }
  }
  if constexpr (kSumRows) {
    const int row = row0 + int(threadIdx.x);
    if (!sums_rows || row >= m) return;
    if (split) {
      partial[int64_t(gridDim.y) * m * n + int64_t(blockIdx.y) * m + row] = row_sum;
    } else {
      epilogue.row_sum(row, row_sum);
    }
  }
}

// Adds the partial sums of a split-K product, in the order of k.
template <typename A, bool kSumRows, typename Epilogue>
__global__ void gemm_reduce_kernel(const A* partial, int m, int n, int splits, Epilogue epilogue) {
  const int64_t count = int64_t(m) * n, at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at < count) {
    A sum = A(0);
    for (int s = 0; s < splits; ++s) sum += partial[s * count + at];
    epilogue(int(at / n), int(at % n), sum);
    return;
  }
  if constexpr (kSumRows) {
    const int row = int(at - count);
    if (row >= m) return;
    A sum = A(0);
    for (int s = 0; s < splits; ++s) sum += partial[splits * count + int64_t(s) * m + row];
    epilogue.row_sum(row, sum);
  }
}

template <typename T, bool kAAlongK, bool kBAlongK, bool kSumRows, typename Epilogue>
cudaError_t launch_gemm(const T* a, int64_t a_pitch, const T* b, int64_t b_pitch, int m, int n,
                        int k, const Epilogue& epilogue, const GemmTiling& tiling, void* workspace,
                        cudaStream_t stream) {
  using A = Accumulated<T>;
  constexpr int kDepth = 16;
  const int tiles = ((m + kGemmTile - 1) / kGemmTile) * ((n + kGemmTile - 1) / kGemmTile);
  const int steps = (k + kDepth - 1) / kDepth, splits = tiling.splits;
  const int k_span = std::max(1, (steps + splits - 1) / splits) * kDepth;
  auto* partial = static_cast<A*>(workspace);
  gemm_tiled_kernel<T, kGemmTile, kDepth, kAAlongK, kBAlongK, kSumRows>
      <<<dim3(tiles, splits), kGemmThreads, 0, stream>>>(a, a_pitch, b, b_pitch, m, n, k, k_span,
                                                         epilogue, partial);
  if (splits > 1) {
    const int64_t count = int64_t(m) * n + (kSumRows ? m : 0);
    const int blocks = int((count + 255) / 256);
    gemm_reduce_kernel<A, kSumRows><<<blocks, 256, 0, stream>>>(partial, m, n, splits, epilogue);
  }
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
