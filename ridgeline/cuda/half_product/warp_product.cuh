#pragma once

#include "ridgeline/cuda/half_product/fragment_layout.h"
#include "ridgeline/cuda/half_product/half_product.h"

// A warp's tile of 32 x 32 results by mma.m16n8k8, from operands stored in shared memory as [row,
// k]. Works on every GPU from sm_75 on.
namespace ridgeline::cuda {

constexpr int kWarpTile = 32;
constexpr int kHalfPad = 8;  // keeps the eight rows of a fragment in different banks

// Sums of 16 x 8 results: lane and index as in fragment_d().
template <typename Sum>
struct TileSums;

template <>
struct TileSums<float> {
  float d[4] = {};

  __device__ void multiply(uint32_t a0, uint32_t a1, uint32_t b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
  }
  __device__ float2 pair(int index) const { return {d[2 * index], d[2 * index + 1]}; }
};

template <>
struct TileSums<__half> {
  uint32_t d[2] = {};

  __device__ void multiply(uint32_t a0, uint32_t a1, uint32_t b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%0,%1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a0), "r"(a1), "r"(b));
  }
  __device__ float2 pair(int index) const {
    return __half22float2(*reinterpret_cast<const __half2*>(&d[index]));
  }
};

template <typename Sum>
struct WarpProduct {
  TileSums<Sum> sums[kWarpTile / 16][kWarpTile / 8];

  // Adds the products of kDepth columns; `pitch` is the row pitch of both operands.
  template <int kDepth>
  __device__ void multiply(const __half* a, const __half* b, int pitch, int lane) {
    const auto pair_at = [pitch](const __half* operand, int row, int k) {
      return *reinterpret_cast<const uint32_t*>(operand + row * pitch + k);
    };
#pragma unroll
    for (int k = 0; k < kDepth; k += 8) {
      uint32_t left[kWarpTile / 16][2], right[kWarpTile / 8];
#pragma unroll
      for (int i = 0; i < kWarpTile / 16; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const FragmentPlace at = fragment_a(lane, half);
          left[i][half] = pair_at(a, 16 * i + at.row, k + at.column);
        }
      }
#pragma unroll
      for (int j = 0; j < kWarpTile / 8; ++j) {
        const FragmentPlace at = fragment_b(lane);
        right[j] = pair_at(b, 8 * j + at.column, k + at.row);
      }
#pragma unroll
      for (int i = 0; i < kWarpTile / 16; ++i) {
#pragma unroll
        for (int j = 0; j < kWarpTile / 8; ++j) {
          sums[i][j].multiply(left[i][0], left[i][1], right[j]);
        }
      }
    }
  }

  // Calls put(row, column, first, second) for each pair of neighbouring results of this lane.
  template <typename Put>
  __device__ void for_each_pair(int lane, Put put) const {
#pragma unroll
    for (int i = 0; i < kWarpTile / 16; ++i) {
#pragma unroll
      for (int j = 0; j < kWarpTile / 8; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const FragmentPlace at = fragment_d(lane, half);
          const float2 pair = sums[i][j].pair(half);
          put(16 * i + at.row, 8 * j + at.column, pair.x, pair.y);
        }
      }
    }
  }
};

// A slab of an operand on its way from global to shared memory: kRows x kDepth values, fetched by
// kThreads threads in vectors of kVector values. fetch() only loads, so that products can be
// computed until put() needs the values.
template <int kRows, int kDepth, int kThreads, int kVector>
struct Slab {
  static constexpr int kCount = kRows * kDepth / kVector / kThreads;
  static_assert(kCount * kVector * kThreads == kRows * kDepth);
  using Vector = std::conditional_t<kVector == 8, uint4, __half>;
  Vector numbers[kCount];

  // Row and k of a thread's i-th vector; neighbouring threads read neighbouring memory.
  static __device__ FragmentPlace place(int i, int thread, bool along_k) {
    const int at = i * kThreads + thread;
    if (along_k) return {at / (kDepth / kVector), at % (kDepth / kVector) * kVector};
    return {at % (kRows / kVector) * kVector, at / (kRows / kVector)};
  }

  // Fetches from row `row` and column `k` on; values past the operand's extents are zeros. Vectors
  // of eight are wholly inside or wholly outside.
  __device__ void fetch(const HalfOperand& operand, int row, int k, int rows, int columns,
                        int thread) {
    const bool along_k = operand.k_pitch == 1;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const FragmentPlace at = place(i, thread, along_k);
      const int r = row + at.row, c = k + at.column;
      numbers[i] = Vector{};
      if (r < rows && c < columns) {
        numbers[i] = *reinterpret_cast<const Vector*>(operand.data + r * operand.row_pitch +
                                                      c * operand.k_pitch);
      }
    }
  }

  __device__ void put(const HalfOperand& operand, __half* shared, int pitch, int thread) const {
    const bool along_k = operand.k_pitch == 1;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const FragmentPlace at = place(i, thread, along_k);
      if constexpr (kVector == 1) {
        shared[at.row * pitch + at.column] = numbers[i];
      } else if (along_k) {
        *reinterpret_cast<Vector*>(shared + at.row * pitch + at.column) = numbers[i];
      } else {
        const auto* each = reinterpret_cast<const __half*>(&numbers[i]);
#pragma unroll
        for (int v = 0; v < kVector; ++v) shared[(at.row + v) * pitch + at.column] = each[v];
      }
    }
  }
};

// Stores one result with its bias; does nothing outside the extents.
__device__ inline void store_result(const HalfProduct& p, int row, int column, float value) {
  if (row >= p.m || column >= p.n) return;
  if (p.bias) value += p.bias[column];
  p.d.put(int64_t{row} * p.n + column, value);
}

// Adds the results that the kWarps warps of a block have for the same tile, through `shared`
// (kWarps tiles of floats), and stores them.
template <int kWarps, typename Sum>
__device__ void store_parallel_k(const WarpProduct<Sum>& mine, const HalfProduct& p, int row,
                                 int column, float* shared) {
  constexpr int kResults = kWarpTile * kWarpTile;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  __syncthreads();  // the memory held operands until now
  mine.for_each_pair(lane, [&](int r, int c, float x, float y) {
    *reinterpret_cast<float2*>(shared + warp * kResults + r * kWarpTile + c) = {x, y};
  });
  __syncthreads();
  for (int at = int(threadIdx.x); at < kResults; at += kWarps * 32) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += shared[w * kResults + at];
    store_result(p, row + at / kWarpTile, column + at % kWarpTile, sum);
  }
}

}  // namespace ridgeline::cuda
