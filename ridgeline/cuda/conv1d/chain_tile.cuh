#pragma once

#include "ridgeline/cuda/conv1d/chain.h"
#include "ridgeline/cuda/conv1d/chain_device.cuh"
#include "ridgeline/cuda/device/mbarrier.cuh"
#include "ridgeline/cuda/device/shared_matrix.cuh"
#include "ridgeline/cuda/gemm/operand_tile.cuh"

// Sizes of the chain of convolutions (chain.cuh), and helpers that all its parts use.
namespace ridgeline::cuda {

struct Chain {
  static constexpr int kSamples = 2, kPitch = 112, kColumns = kSamples * kPitch;
  static constexpr int kLeastLeft = 97 - 2 * kMostChained;  // positions after the last layer
  static constexpr int kChannels = 256, kTaps = 3, kChunks = 4, kPasses = 2;
  static constexpr int kConsumers = 2, kMultiplying = kConsumers * 128;
  static constexpr int kThreads = kMultiplying + 128;  // plus a warpgroup for loads
  static constexpr int kChunkBytes = kColumns * kStageRowBytes, kBuffers = 6;
  // A stage of weights: one tap of 32 channels for the 128 results of a pass.
  static constexpr int kStageK = 32, kStageRow = 2 * kStageK, kStageBytes = 128 * kStageRow;
  static constexpr int kStages = 7, kStagesPerPass = kChunks * kTaps * 2;
  static constexpr int kLayerBytes = kPasses * kStagesPerPass * kStageBytes;
  static constexpr int kEights =
      kPitch / 8;  // groups of eight columns per sample, as in accumulators
  // gamma and beta of a pass take one stage per two groups of eight columns.
  static constexpr int kNormStages = kEights / 2;
  static constexpr int kNormBytes = kPasses * kNormStages * kStageBytes;
  static_assert(kStageBytes == 2 * kMultiplying * 16);
  // Words of a thread's results, two results per word.
  static constexpr int kWords = kSamples * kEights * 2;
  static constexpr int kStashPitch = kMultiplying * 4;
  static constexpr int kSmemBytes = 1024 + kBuffers * kChunkBytes + kStages * kStageBytes + 512;
  static_assert(kSmemBytes <= 227 * 1024);
};

struct ChainWork {
  int n, tiles, layers, left;
  float epsilon;
  const char* stages;   // weights, then gamma and beta, in the order in which they are used
  const float* biases;  // [layers, 256]
};

template <typename T>
__device__ inline uint32_t pack_two(float a, float b) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

// Replaces negative values by zero; NaN stays NaN.
template <typename T>
__device__ inline uint32_t pack_relu(float a, float b) {
  uint32_t packed;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(b), "f"(a));
  } else {
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(b), "f"(a));
  }
  return packed;
}

template <typename T>
__device__ inline float2 unpack_two(uint32_t packed) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return {__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u)};
  } else {
    return __half22float2(*reinterpret_cast<const __half2*>(&packed));
  }
}

struct alignas(16) ChainBarriers {
  Mbarrier full[Chain::kStages], empty[Chain::kStages];
  Mbarrier rows_full[Chain::kChunks], rows_empty;
};

}  // namespace ridgeline::cuda
