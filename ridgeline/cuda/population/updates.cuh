#pragma once

// The gradients of a member's weights, applied where they are made.

#include "ridgeline/cuda/population/block.cuh"

namespace ridgeline::cuda::population {

// 32 samples x 64 hidden, as packed pairs, to rows of the staged memory.
__device__ inline void stage_hidden(Shared& s, const Lane& l, const uint32_t (&values)[2][8][2]) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        __half* to =
            s.staged + (l.samples + 16 * m + 8 * side + l.g) * kStagedRow + 8 * n + 2 * l.t;
        *reinterpret_cast<uint32_t*>(to) = values[m][n][side];
      }
    }
  }
}

// The transpose of 16 samples (from `sample`) x 16 staged columns (from `column`) as operand a.
__device__ inline void load_columns(const Shared& s, const Lane& l, int sample, int column,
                                    uint32_t (&a)[4]) {
  load_transposed(a, s.staged + (sample + 8 * (l.matrix / 2) + l.row) * kStagedRow + column +
                         8 * (l.matrix % 2));
}

__device__ inline float stepped(float w, float gradient, float rate, float decay) {
  return w - rate * (gradient + decay * w);
}

// w2[class, hidden] for the 64 hidden that are staged; a warp has 16 hidden of them and 8 classes.
__device__ inline void update_w2(const PopulationTraining& p, Shared& s, const Lane& l, int half,
                                 float rate, float decay) {
  const int hidden = 16 * (l.warp % 4), first_class = 8 * (l.warp / 4);
  float sum[4] = {0, 0, 0, 0};
#pragma unroll
  for (int k = 0; k < kBatch; k += 32) {
    uint32_t b[4];  // of 32 samples: one class after the other, two steps of the sum
    load_transposed(b, s.d + (k + 8 * l.matrix + l.row) * kClasses + first_class);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t a[4];
      load_columns(s, l, k + 16 * i, hidden, a);
      multiply(sum, a[0], a[1], a[2], a[3], b[2 * i], b[2 * i + 1]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int c = first_class + 2 * l.t + i % 2;
    if (c >= p.classes) continue;
    __half& w = s.w2[c * kW2Row + 64 * half + hidden + l.g + 8 * (i / 2)];
    w = __float2half_rn(stepped(__half2float(w), sum[i] / kBatch, rate, decay));
  }
}

// The bytes that a thread stages of a chunk: 32 of half a row; of what is left over, 16 of a row.
__device__ inline void fetch(const PopulationTraining& p, const Shared& s, int now, int chunk,
                             uint4 (&bytes)[2]) {
  const int row = threadIdx.x / 2, side = threadIdx.x % 2;
  const uint8_t* x = p.inputs + int64_t(s.samples[now][row]) * kInputs + chunk * kChunk;
  if (chunk == kWhole) {
    if (side == 0) bytes[0] = *reinterpret_cast<const uint4*>(x);
    return;
  }
  bytes[0] = *reinterpret_cast<const uint4*>(x + 32 * side);
  bytes[1] = *reinterpret_cast<const uint4*>(x + 32 * side + 16);
}

__device__ inline void stage_inputs(Shared& s, int chunk, const uint4 (&bytes)[2]) {
  const int row = threadIdx.x / 2, side = threadIdx.x % 2;
  if (chunk == kWhole && side == 1) return;
  auto* to = reinterpret_cast<uint4*>(s.staged + row * kStagedRow + 32 * side);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (chunk == kWhole && i == 1) return;
    const uint4& b = bytes[i];
    to[2 * i] = {to_halves<0>(b.x), to_halves<1>(b.x), to_halves<0>(b.y), to_halves<1>(b.y)};
    to[2 * i + 1] = {to_halves<0>(b.z), to_halves<1>(b.z), to_halves<0>(b.w), to_halves<1>(b.w)};
  }
}

// w1 for `kColumns` x 8 inputs of the staged chunk, from l.inputs on; dz is operand a of 32 hidden
// x 128 samples.
template <int kColumns>
__device__ inline void update_w1(Shared& s, const Lane& l, int chunk, int first,
                                 const uint32_t (&dz)[2][8][4], float scale, float rate,
                                 float decay) {
  float sum[2][kColumns][4] = {};
#pragma unroll
  for (int k = 0; k < 8; ++k) {
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      uint32_t b[4];
      load_transposed(b, s.staged + (16 * k + 8 * (l.matrix % 2) + l.row) * kStagedRow + first +
                             8 * n + 8 * (l.matrix / 2));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        multiply(sum[m][n], dz[m][k][0], dz[m][k][1], dz[m][k][2], dz[m][k][3], b[0], b[1]);
        multiply(sum[m][n + 1], dz[m][k][0], dz[m][k][1], dz[m][k][2], dz[m][k][3], b[2], b[3]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int hidden = l.hidden + 16 * m + 8 * side + l.g;
        auto& w = *reinterpret_cast<uint32_t*>(s.w1 + hidden * kW1Row + chunk * kChunk + first +
                                               8 * n + 2 * l.t);
        const float2 before = unpack(w);
        w = pack(stepped(before.x, scale * sum[m][n][2 * side], rate, decay),
                 stepped(before.y, scale * sum[m][n][2 * side + 1], rate, decay));
      }
    }
  }
}

// The gradient of b1, from the rows of dz.
__device__ inline void update_b1(Shared& s, const Lane& l, const uint32_t (&dz)[2][8][4],
                                 float rate) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float sum = 0;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float2 low = unpack(dz[m][k][side]), high = unpack(dz[m][k][2 + side]);
        sum += low.x + low.y + high.x + high.y;
      }
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      if (l.t == 0 && l.inputs == 0) {
        s.b1[l.hidden + 16 * m + 8 * side + l.g] -= rate * sum / kBatch;
      }
    }
  }
}

}  // namespace ridgeline::cuda::population
