#pragma once

#include "ridgeline/cuda/tile/mma_tf32_fp64.cuh"
#include "ridgeline/cuda/tile/stage.cuh"

// The inner products of the tile functions. A math defines how a block's threads divide a tile of
// kM x kN sums and in which layout it needs the operands' stages, adds a stage to the sums, and
// returns the position in the tile of sum i of a thread.
namespace ridgeline::cuda::tile {

// A tile and its pipeline, designed for kBlocks blocks per SM.
template <int kTileM, int kTileN, int kTileDepth, int kTileStages, int kTileBlocks>
struct Shape {
  static constexpr int kM = kTileM, kN = kTileN, kDepth = kTileDepth, kStages = kTileStages;
  static constexpr int kBlocks = kTileBlocks;
};

struct Place {
  int row, col;
};

// fp32 multiply-adds: each thread has kSideM x kSideN sums, and a warp is 4 x 8 threads. Operands
// with k contiguous are read in groups of kGroup along k, with a thread's rows 4 (columns 8) apart;
// others in groups of four rows.
template <typename S, int kSideM, int kSideN, Order kA, Order kB, int kGroup = 4>
struct FmaMath {
  using T = float;
  using Sum = float;
  static constexpr int kWarpM = 4 * kSideM, kWarpN = 8 * kSideN;
  static constexpr int kWarpsM = S::kM / kWarpM, kWarpsN = S::kN / kWarpN;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kSums = kSideM * kSideN;
  static_assert(kWarpM * kWarpsM == S::kM && kWarpN * kWarpsN == S::kN);
  static_assert(kA == Order::k || kSideM % 4 == 0);
  static_assert(kB == Order::k || kSideN % 4 == 0);

  // Eight rows, 20 words apart, start in eight different quarters of the banks.
  template <int kRows, Order kOrder>
  using Layout = Stage<float, kRows, S::kDepth, kOrder, kOrder == Order::k ? S::kDepth + 4 : kRows>;
  using StageA = Layout<S::kM, kA>;
  using StageB = Layout<S::kN, kB>;

  static constexpr int kBlocks = S::kDepth / kGroup;
  struct Fragment {
    float a[kGroup][kSideM], b[kGroup][kSideN];
  };

  float sum[kSums] = {};

  __device__ float at(int i) const { return sum[i]; }

  static __device__ void read(Fragment& to, const float* a, const float* b, int block) {
    read<StageA, kSideM, 4>(to.a, a, first_row(), lane_m(), block * kGroup);
    read<StageB, kSideN, 8>(to.b, b, first_col(), lane_n(), block * kGroup);
  }
  __device__ void multiply(const Fragment& f) {
#pragma unroll
    for (int d = 0; d < kGroup; ++d) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        sum[i] = fmaf(f.a[d][i / kSideN], f.b[d][i % kSideN], sum[i]);
      }
    }
  }
  __device__ void end_stage() {}

  static __device__ Place place(int i) {
    return {first_row() + offset<kA, 4>(lane_m(), i / kSideN),
            first_col() + offset<kB, 8>(lane_n(), i % kSideN)};
  }

 private:
  static __device__ int lane_m() { return int(threadIdx.x) % 32 / 8; }
  static __device__ int lane_n() { return int(threadIdx.x) % 8; }
  static __device__ int first_row() { return int(threadIdx.x) / 32 % kWarpsM * kWarpM; }
  static __device__ int first_col() { return int(threadIdx.x) / 32 / kWarpsM * kWarpN; }

  template <Order kOrder, int kLanes>
  static __device__ int offset(int lane, int i) {
    return kOrder == Order::k ? lane + i * kLanes : (i / 4 * kLanes + lane) * 4 + i % 4;
  }

  // part[d][i]: row (or column) i of this thread at depth + d.
  template <typename Layout, int kSide, int kLanes>
  static __device__ void read(float (&part)[kGroup][kSide], const float* stage, int first, int lane,
                              int depth) {
    if constexpr (Layout::kOrder == Order::k) {
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
        const Words<kGroup> words = *reinterpret_cast<const Words<kGroup>*>(
            stage + Layout::at(first + lane + i * kLanes, depth));
#pragma unroll
        for (int d = 0; d < kGroup; ++d) part[d][i] = words.values[d];
      }
    } else {
#pragma unroll
      for (int d = 0; d < kGroup; ++d) {
#pragma unroll
        for (int i = 0; i < kSide; i += 4) {
          const Words<4> words = *reinterpret_cast<const Words<4>*>(
              stage + Layout::at(first + (i / 4 * kLanes + lane) * 4, depth + d));
#pragma unroll
          for (int e = 0; e < 4; ++e) part[d][i + e] = words.values[e];
        }
      }
    }
  }

  template <int kCount>
  struct alignas(4 * kCount) Words {
    float values[kCount];
  };
};

// Products of a unit (below) in warps of kWarpsM x kWarpsN tiles, each of 16 x 8 products.
template <typename S, int kWarpsM, int kWarpsN, typename Unit, Order kA, Order kB>
struct MmaMath {
  using T = typename Unit::T;
  using Sum = typename Unit::Sum;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kWarpM = S::kM / kWarpsM, kWarpN = S::kN / kWarpsN;
  static constexpr int kTilesM = kWarpM / 16, kTilesN = kWarpN / 8;
  static constexpr int kSums = kTilesM * kTilesN * 4;
  static_assert(kTilesM * 16 * kWarpsM == S::kM && kTilesN * 8 * kWarpsN == S::kN);

  // With k contiguous in both and 4-byte factors, lane t reads k = 4t .. 4t + 3 of sixteen at once:
  // the order of k in a product is free as long as both operands use the same.
  static constexpr bool kFours = kA == Order::k && kB == Order::k && sizeof(T) == 4;
  static constexpr int kEights = kFours ? 2 : 1;  // groups of eight along k in a fragment
  static_assert(!kFours || S::kDepth % 32 == 0);
  // Pitches that put what a warp (for doubles: half a warp) reads at once into different banks.
  static constexpr int kPad(Order order) { return sizeof(T) == 8 || order == Order::k ? 4 : 8; }
  template <int kRows, Order kOrder>
  using Layout =
      Stage<T, kRows, S::kDepth, kOrder,
            kFours ? S::kDepth : (kOrder == Order::k ? S::kDepth : kRows) + kPad(kOrder), kFours>;
  using StageA = Layout<S::kM, kA>;
  using StageB = Layout<S::kN, kB>;

  static constexpr int kBlocks = S::kDepth / (8 * kEights);
  struct Fragment {
    T a[kEights][kTilesM][4], b[kEights][kTilesN][2];
  };

  Sum sum[kTilesM * kTilesN][4] = {};
  Sum stage_sum[Unit::kShortSums ? kTilesM * kTilesN : 1][4] = {};

  __device__ void multiply(const Fragment& f) {
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      if constexpr (Unit::kShortSums) {
        Unit::template multiply<kTilesM, kTilesN>(stage_sum, f.a[eight], f.b[eight]);
      } else {
        Unit::template multiply<kTilesM, kTilesN>(sum, f.a[eight], f.b[eight]);
      }
    }
  }
  __device__ void end_stage() {
    if constexpr (Unit::kShortSums) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        sum[i / 4][i % 4] += stage_sum[i / 4][i % 4];
        stage_sum[i / 4][i % 4] = Sum(0);
      }
    }
  }

  static __device__ void read(Fragment& to, const T* a, const T* b, int block) {
    read_block(to, a, b, block * 8 * kEights);
  }

  __device__ Sum at(int i) const { return sum[i / 4][i % 4]; }

  static __device__ Place place(int i) {
    const int tile = i / 4;
    return {first_row() + tile / kTilesN * 16 + group() + i % 4 / 2 * 8,
            first_col() + tile % kTilesN * 8 + 2 * quad() + i % 2};
  }

 private:
  static __device__ int group() { return int(threadIdx.x) % 32 / 4; }
  static __device__ int quad() { return int(threadIdx.x) % 4; }
  static __device__ int first_row() { return int(threadIdx.x) / 32 % kWarpsM * kWarpM; }
  static __device__ int first_col() { return int(threadIdx.x) / 32 / kWarpsM * kWarpN; }

  static __device__ void read_block(Fragment& to, const T* a, const T* b, int depth) {
    if constexpr (kFours) {
      read_fours(to, a, b, depth + 4 * quad());
    } else {
#pragma unroll
      for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          to.a[0][m][i] =
              a[StageA::at(first_row() + m * 16 + i % 2 * 8 + group(), depth + i / 2 * 4 + quad())];
        }
      }
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          to.b[0][n][i] = b[StageB::at(first_col() + n * 8 + group(), depth + i * 4 + quad())];
        }
      }
    }
  }

  static __device__ void read_fours(Fragment& to, const T* a, const T* b, int k) {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto four = *reinterpret_cast<const float4*>(
            a + StageA::at(first_row() + m * 16 + half * 8 + group(), k));
        to.a[0][m][half] = four.x;
        to.a[0][m][half + 2] = four.y;
        to.a[kEights - 1][m][half] = four.z;
        to.a[kEights - 1][m][half + 2] = four.w;
      }
    }
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      const auto four =
          *reinterpret_cast<const float4*>(b + StageB::at(first_col() + n * 8 + group(), k));
      to.b[0][n][0] = four.x;
      to.b[0][n][1] = four.y;
      to.b[kEights - 1][n][0] = four.z;
      to.b[kEights - 1][n][1] = four.w;
    }
  }
};

// A unit multiplies a[kM][16 x 8] by b[kN][8 x 8]. kShortSums: the tensor cores truncate when they
// add, always towards zero, so that long sums drift; a stage's sum is therefore added to the total
// by an ordinary addition.
struct Fp64Unit {
  using T = double;
  using Sum = double;
  static constexpr bool kShortSums = false;

  template <int kM, int kN>
  static __device__ void multiply(double (&sum)[kM * kN][4], const double (&a)[kM][4],
                                  const double (&b)[kN][2]) {
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) mma_fp64(sum[i], a[i / kN], b[i % kN]);
  }
};

// fp32 factors whose exact products are summed in fp64.
struct Fp32InFp64Unit {
  using T = float;
  using Sum = double;
  static constexpr bool kShortSums = false;

  template <int kM, int kN>
  static __device__ void multiply(double (&sum)[kM * kN][4], const float (&a)[kM][4],
                                  const float (&b)[kN][2]) {
    double wide_a[kM][4], wide_b[kN][2];
#pragma unroll
    for (int i = 0; i < kM * 4; ++i) wide_a[i / 4][i % 4] = double(a[i / 4][i % 4]);
#pragma unroll
    for (int i = 0; i < kN * 2; ++i) wide_b[i / 2][i % 2] = double(b[i / 2][i % 2]);
    Fp64Unit::multiply<kM, kN>(sum, wide_a, wide_b);
  }
};

struct Tf32Unit {
  using T = float;
  using Sum = float;
  static constexpr bool kShortSums = false;

  template <int kM, int kN>
  static __device__ void multiply(float (&sum)[kM * kN][4], const float (&a)[kM][4],
                                  const float (&b)[kN][2]) {
    uint32_t left[kM][4], right[kN][2];
#pragma unroll
    for (int i = 0; i < kM * 4; ++i) left[i / 4][i % 4] = to_tf32(a[i / 4][i % 4]);
#pragma unroll
    for (int i = 0; i < kN * 2; ++i) right[i / 2][i % 2] = to_tf32(b[i / 2][i % 2]);
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) mma_tf32(sum[i], left[i / kN], right[i % kN]);
  }
};

// Each factor is big + small, both in tf32: small*big + big*small + big*big. The omitted terms,
// small*small and the truncated ends of the small parts, are below 5 * 2^-22 of |a||b|.
struct Tf32x3Unit {
  using T = float;
  using Sum = float;
  static constexpr bool kShortSums = true;

  template <int kM, int kN>
  static __device__ void multiply(float (&sum)[kM * kN][4], const float (&a)[kM][4],
                                  const float (&b)[kN][2]) {
    uint32_t left[kM][4], left_rest[kM][4], right[kN][2], right_rest[kN][2];
#pragma unroll
    for (int i = 0; i < kM * 4; ++i)
      split(a[i / 4][i % 4], left[i / 4][i % 4], left_rest[i / 4][i % 4]);
#pragma unroll
    for (int i = 0; i < kN * 2; ++i)
      split(b[i / 2][i % 2], right[i / 2][i % 2], right_rest[i / 2][i % 2]);
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) mma_tf32(sum[i], left_rest[i / kN], right[i % kN]);
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) mma_tf32(sum[i], left[i / kN], right_rest[i % kN]);
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) mma_tf32(sum[i], left[i / kN], right[i % kN]);
  }

 private:
  // The tensor cores ignore the low bits of the small part, which costs it 2^-10 of itself.
  static __device__ void split(float x, uint32_t& big, uint32_t& rest) {
    big = to_tf32(x);
    rest = __float_as_uint(x - __uint_as_float(big));
  }
};

}  // namespace ridgeline::cuda::tile
