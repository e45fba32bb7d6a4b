#pragma once

// What a block that trains a member keeps in shared memory, and the fragments that its warps
// multiply.

#include "ridgeline/cuda/population/train.h"

namespace ridgeline::cuda::population {

constexpr int kInputs = PopulationTraining::kInputs, kHidden = PopulationTraining::kHidden,
              kClasses = PopulationTraining::kMostClasses, kBatch = PopulationTraining::kBatch;
constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kChunk = 64;                // inputs that are staged at a time
constexpr int kWhole = kInputs / kChunk;  // such chunks; 16 inputs are left over
constexpr int kLeft = kInputs % kChunk;
static_assert(kLeft == 16);

// Rows are 12, 4 and 4 words longer than a multiple of the banks, so that the eight rows that one
// access of a warp touches lie in different banks.
constexpr int kW1Row = kInputs + 8, kW2Row = kHidden + 8, kStagedRow = kChunk + 8;

struct Shared {
  __half w1[kHidden * kW1Row];
  __half staged[kBatch * kStagedRow];  // of X, h or dz; or the halves of the logits
  __half w2[kClasses * kW2Row];
  __half d[kBatch * kClasses];
  float b1[kHidden], b2[kClasses];
  int32_t samples[2][kBatch];  // of this step and the next
  uint8_t labels[2][kBatch];
  float d_sums[4][kClasses], losses[4];
  int32_t corrects[4];
};
static_assert(sizeof(Shared) <= 232448, "what a block may have of an SM");
static_assert(2 * kBatch * kClasses * sizeof(float) <= sizeof(Shared::staged));

__device__ inline uint32_t pack(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}
__device__ inline float2 unpack(uint32_t pair) {
  return __half22float2(reinterpret_cast<const __half2&>(pair));
}

// Bytes 0 and 1, or 2 and 3, of a word as two fp16 numbers: 0x6400 + b is 1024 + b.
template <int kPair>
__device__ inline uint32_t to_halves(uint32_t bytes) {
  const uint32_t raised = __byte_perm(bytes, 0x64646464u, kPair == 0 ? 0x4140 : 0x4342);
  const __half2 value = __hsub2(reinterpret_cast<const __half2&>(raised), __float2half2_rn(1024));
  return reinterpret_cast<const uint32_t&>(value);
}

// d += a . b: a is 16 x 16, b 16 x 8.
__device__ inline void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices of fp16, transposed; lane 8 i + r gives the address of row r of matrix i.
__device__ inline void load_transposed(uint32_t (&to)[4], const __half* row) {
  const auto at = uint32_t(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}

struct Lane {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int g = lane / 4, t = lane % 4;         // row and column group of a fragment
  int samples = 32 * (warp % 4);          // of the forward pass
  int half = warp / 4;                    // of the hidden layer, in the forward pass
  int hidden = 32 * (warp % 4);           // of the gradient of w1
  int inputs = 32 * (warp / 4);           // of a chunk, likewise
  int row = lane % 8, matrix = lane / 8;  // of load_transposed
};

using Hidden = float[2][8][4];  // 32 samples x 64 hidden of a warp

}  // namespace ridgeline::cuda::population
