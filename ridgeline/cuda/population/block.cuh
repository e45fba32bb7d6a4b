#pragma once

// The shared-memory layout of a block of a member's cluster.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/device/shared_matrix.cuh"
#include "ridgeline/cuda/device/wgmma.cuh"
#include "ridgeline/cuda/device/wgmma_register_operand.cuh"
#include "ridgeline/cuda/population/train.h"

namespace ridgeline::cuda::population {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRows = 128;    // the most samples of a step
constexpr int kClasses = 16;  // the most classes
constexpr int kChunk = 64;    // inputs that are multiplied at a time; the rest by 16
constexpr int kPanel = 16;
constexpr int kStagedBytes = kRows * kChunk * 2;

// Pairs of the half types in one register.
template <typename T>
__device__ inline uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}
template <typename T>
__device__ inline float2 unpack(uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  } else {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
  }
}

// Bytes 0 and 1, or 2 and 3, of a word as two numbers, which both half types represent exactly.
template <typename T, int kPair>
__device__ inline uint32_t to_numbers(uint32_t bytes) {
  if constexpr (std::is_same_v<T, __half>) {
    // 0x6400 + b is 1024 + b.
    const uint32_t raised = __byte_perm(bytes, 0x64646464u, kPair == 0 ? 0x4140 : 0x4342);
    const __half2 value = __hsub2(reinterpret_cast<const __half2&>(raised), __float2half2_rn(1024));
    return reinterpret_cast<const uint32_t&>(value);
  } else {
    // 0x4b000000 + b is 2^23 + b.
    const auto value = [&](int i) {
      return __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7440 + i)) - 8388608.0f;
    };
    return __byte_perm(__float_as_uint(value(2 * kPair)), __float_as_uint(value(2 * kPair + 1)),
                       0x7632);
  }
}

// The small data, after the first layer's weights.
struct RemainingOps {
  MemberArgs member;
  float b1[128], b2[kClasses];
  int32_t samples[2][kRows];  // for this step and the next
  uint8_t labels[2][kRows];
  float d_sums[kWarps][kClasses], losses[kWarps];
  int32_t corrects[kWarps];
};

// The shared memory of a block that has kUnits units of the hidden layer.
//
// Inputs have a special order within a chunk: 16 adjacent bytes of a sample are the values that a
// lane needs for four products (position_of). In that order w1 is [units][64 inputs], chunk after
// chunk, with the 128-byte swizzle; the remaining inputs are in panels [units][16], with the
// 32-byte swizzle. Master weights are fp32 in the same order, and are rounded to the staging memory
// one chunk at a time.
template <typename T, int kUnits, bool kMasters>
struct Map {
  static_assert(kUnits == 64 || (kUnits == 128 && !kMasters));
  static constexpr int kStaged = 0;  // X, h or dz as operands of products; parts of the logits
  static constexpr int kW2 = kStaged + kStagedBytes;   // [16 classes][64 units] per panel
  static constexpr int kD = kW2 + 2 * kClasses * 128;  // [128 samples][16 classes]
  static constexpr int kW1 = kD + kRows * 32;
  static constexpr int kWeightBytes = kMasters ? 4 : 2;
  static constexpr int kChunkBytes = kUnits * kChunk * kWeightBytes;
  static constexpr int kPanelBytes = kUnits * kPanel * kWeightBytes;
  static_assert(kW1 % 1024 == 0);

  static __host__ __device__ int rest(int inputs) { return kW1 + inputs * kUnits * kWeightBytes; }
  // The master weights of w2, [16][64], follow the rest.
  static int bytes(int inputs) {
    return rest(inputs) + int(sizeof(RemainingOps)) + (kMasters ? kClasses * kUnits * 4 : 0);
  }

  // Byte offsets of two neighbouring positions; `position` is even.
  static __device__ int in_chunk(int row, int position) {
    if constexpr (kMasters) {
      return row * 256 + ((position / 4 ^ 2 * (row & 3)) << 4) + position % 4 * 4;
    }
    return half_chunk(row, position);
  }
  static __device__ int in_panel(int row, int position) {
    if constexpr (kMasters) {
      return row * 64 + ((position / 4 ^ (row & 2)) << 4) + position % 4 * 4;
    }
    return half_panel(row, position);
  }
  static __device__ int half_chunk(int row, int position) {  // 128-byte swizzle
    return row * 128 + ((position / 8 ^ (row & 7)) << 4) + position % 8 * 2;
  }
  static __device__ int half_panel(int row, int position) {  // 32-byte swizzle
    return row * 32 + ((position / 8 ^ (row >> 2 & 1)) << 4) + position % 8 * 2;
  }
};

// The position, within its chunk, of the even input i and its neighbour; and the inverse.
__device__ inline int position_of(int i) {
  return 16 * (i % 16 / 4) + (i % 4 < 2 ? 0 : 8) + 2 * (i / 16);
}
__device__ inline int input_at(int position) {
  return 16 * (position % 8 / 2) + 4 * (position / 16) + (position % 16 < 8 ? 0 : 2);
}
// The position within a panel of 16; and the inverse.
__device__ inline int panel_position_of(int i) { return (i % 4 < 2 ? 0 : 8) + 2 * (i / 4); }
__device__ inline int panel_input_at(int position) {
  return 4 * (position % 8 / 2) + (position < 8 ? 0 : 2);
}

// The indices of a thread. Each phase of a step makes its own and reads the thread index again, so
// that the compiler does not compute the addresses of all phases ahead and keep them in registers.
struct Lane {
  int warp, lane;
  int group;   // warpgroup
  int g, t;    // row and column pair of a fragment
  int sample;  // the sample of a fragment's first row; the second is 8 further

  __device__ Lane() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    warp = thread / 32;
    lane = thread % 32;
    group = warp / 4;
    g = lane / 4;
    t = lane % 4;
    sample = 16 * warp + g;
  }
};

}  // namespace ridgeline::cuda::population
