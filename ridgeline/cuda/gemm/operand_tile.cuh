#pragma once

#include <algorithm>

#include "ridgeline/cuda/device/tma.cuh"
#include "ridgeline/cuda/device/uniform.cuh"
#include "ridgeline/cuda/device/wgmma.cuh"

namespace ridgeline::cuda {

// A stage holds 128 bytes of k for every row of A and of B: the widest swizzle, and four wgmma
// steps.
constexpr int kStageRowBytes = 128;
constexpr int kStepsPerStage = 4;

template <typename T>
constexpr int kStageDepth = kStageRowBytes / int{sizeof(T)};

// kRows rows (m of A, n of B) by kStageDepth<T> of k of an operand, in shared memory in the layout
// that TMA writes and wgmma reads.
//   k-major:  one box [kRows][128 bytes of k].
//   mn-major: boxes [64 of k][kBlock rows], one for each kBlock rows; the last may hold rows
//             beyond the tile.
// In both cases 64 rows (or 8 in k-major) of a tile are a contiguous part of it, and a part of the
// tile is itself a tile.
template <typename T, Major kMajor, int kRows>
struct OperandTile {
  static constexpr bool kTransposed = kMajor == Major::mn;
  static constexpr int kDepth = kStageDepth<T>;
  static constexpr int kBlock = std::min(kRows, 64);
  static constexpr int kBlocks = kTransposed ? (kRows + kBlock - 1) / kBlock : 1;
  static constexpr int kBlockBytes = kBlock * kStageRowBytes;
  static constexpr int kBytes = kTransposed ? kBlocks * kBlockBytes : kRows * kStageRowBytes;
  static_assert(!kTransposed || sizeof(T) == 2);

  static CUtensorMap make_map(const void* data, int64_t rows, int64_t depth, int64_t pitch) {
    const T* typed = static_cast<const T*>(data);
    if constexpr (kTransposed) return make_tensor_map(typed, depth, rows, pitch, kDepth, kBlock);
    return make_tensor_map(typed, rows, depth, pitch, kRows, kDepth);
  }

  // Starts the copy of the tile whose first row is `row` at depth k. Called by one thread.
  __device__ static void load(char* tile, const CUtensorMap* map, Mbarrier* barrier, int row,
                              int k) {
    if constexpr (kTransposed) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        tma_load(tile + i * kBlockBytes, map, barrier, row + i * kBlock, k);
      }
    } else {
      tma_load(tile, map, barrier, k, row);
    }
  }

  // The descriptor of wgmma step `step` (32 bytes of k) for the rows from `tile` on. Descriptors of
  // different steps differ only in the address, which is in the low word.
  __device__ static uint64_t descriptor(uint32_t tile, int step) {
    constexpr int kRowBytes = kTransposed ? kBlock * int{sizeof(T)} : kStageRowBytes;  // for one k
    constexpr int kStepBytes = (kTransposed ? kDepth * kRowBytes : kRowBytes) / kStepsPerStage;
    constexpr int kLeading = kTransposed ? kBlockBytes : 16;
    const uint64_t first = wgmma_descriptor(tile, kLeading, /*stride=*/8 * kRowBytes, kRowBytes);
    return first >> 32 << 32 | (uint32_t(first) + step * (kStepBytes / 16));
  }
};

// wgmma truncates floats to tf32, which biases sums of one sign towards zero. These threads round a
// stage's floats to nearest instead, in place, before any of them multiplies.
template <int kBytes, int kThreads>
__device__ inline void round_stage_to_tf32(char* stage, int thread, int barrier) {
  static_assert(kBytes % (16 * kThreads) == 0);
  const auto nearest = [](float x) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
  };
#pragma unroll
  for (int i = 0; i < kBytes / (16 * kThreads); ++i) {
    float4* at = reinterpret_cast<float4*>(stage) + i * kThreads + thread;
    const float4 v = *at;
    *at = make_float4(nearest(v.x), nearest(v.y), nearest(v.z), nearest(v.w));
  }
  fence_async_proxy();
  named_barrier(barrier, kThreads);
}

// acc[i] (+)= rows 64 i.. of the warpgroup's part of A times all of B, for one stage. Asynchronous:
// the caller waits. The accumulator of thread t holds rows t / 4 % 8 + 16 (t / 32) (+ 8), and of
// each eight columns the pair 2 (t % 4).
template <typename T, typename ATile, typename BTile, int kBlocks, int kCount>
__device__ inline void multiply_stage(float (&acc)[kBlocks][kCount], uint32_t a, uint32_t b,
                                      bool accumulate) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kStepsPerStage; ++step) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      wgmma<T, ATile::kTransposed, BTile::kTransposed>(
          acc[i], ATile::descriptor(a + i * 64 * kStageRowBytes, step), BTile::descriptor(b, step),
          accumulate || step > 0);
    }
  }
  wgmma_commit();
}

// The index of this thread's warpgroup in the block.
__device__ inline int uniform_warpgroup() { return uniform(int(threadIdx.x) / 128); }

// The position in a ring of stages: which stage is next, and the parity of its barriers' phase.
template <int kStages>
struct StageCursor {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace ridgeline::cuda
