#pragma once

// The last layer of a member, and its loss. Every block of a cluster computes the parts of the
// logits from its own units; all blocks add the parts in the same order, so each has the whole
// logits.

#include "ridgeline/cuda/population/block.cuh"

namespace ridgeline::cuda::population {

__device__ inline float2 load_cluster_pair(uint32_t address) {
  float2 v;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(v.x), "=f"(v.y)
               : "r"(address)
               : "memory");
  return v;
}

// logits[4 n + 2 side]: rows l.sample + 8 side, columns 8 n + 2 t (+ 1). `h` holds operands: units
// 16 k.. of both rows. The parts of 64 units each are added one after the other, however many of
// them a block has, so that the bits do not depend on the layout. Returns between the two halves of
// a cluster barrier: the staging memory must not be written before cluster_wait().
template <typename T, int kUnits>
__device__ inline void multiply_logits(char* shared, uint32_t staged, uint32_t w2, const Lane& l,
                                       int blocks, const uint32_t (&h)[kUnits / 16][4],
                                       float (&logits)[8]) {
  constexpr int kParts = kUnits / 64, kPartBytes = kRows * kClasses * 4;
  float parts[kParts][8];
  wgmma_fence();
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint64_t b = wgmma_descriptor(w2 + part * (kClasses * 128), 16, 1024, 128);
      wgmma_register_operand<T>(parts[part], h[4 * part + k], b + 2 * k, k > 0);
    }
  }
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (int part = 0; part < kParts; ++part) wgmma_keep(parts[part]);
#pragma unroll
  for (int i = 0; i < 8; ++i) logits[i] = parts[0][i];
  if (blocks == 1) {
    if constexpr (kParts == 2) {
#pragma unroll
      for (int i = 0; i < 8; ++i) logits[i] += parts[1][i];
    }
    return;
  }
  const auto offset = [&](int i) {  // the offset of logits[2 i]
    return uint32_t((l.sample + 8 * (i % 2)) * kClasses + 8 * (i / 2) + 2 * l.t) * 4;
  };
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      *reinterpret_cast<float2*>(shared + part * kPartBytes + offset(i)) = {parts[part][2 * i],
                                                                            parts[part][2 * i + 1]};
    }
  }
  cluster_sync();
  for (int i = 0; i < blocks * kParts; ++i) {
    const uint32_t from =
        cluster_address(staged, uint32_t(i / kParts)) + uint32_t(i % kParts * kPartBytes);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 part = load_cluster_pair(from + offset(j));
      logits[2 * j] = i == 0 ? part.x : logits[2 * j] + part.x;
      logits[2 * j + 1] = i == 0 ? part.y : logits[2 * j + 1] + part.y;
    }
  }
  cluster_arrive();
}

// d = softmax - one-hot, not divided by the batch, as an operand and in shared memory for the
// product with h. This warp's contributions to the loss, the correct predictions and the gradient
// of b2 go to `rest`.
template <typename T>
__device__ inline void loss(char* d_tile, RemainingOps& rest, int now, const Lane& l, int classes,
                            int batch, const float (&logits)[8], uint32_t (&d)[4]) {
  float sum = 0, columns[4] = {0, 0, 0, 0};
  int correct = 0;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int row = l.sample + 8 * side, label = rest.labels[now][row];
    float x[4], most = -INFINITY;
    int first = kClasses;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int c = 8 * (i / 2) + 2 * l.t + i % 2;
      x[i] = c < classes ? logits[4 * (i / 2) + 2 * side + i % 2] + rest.b2[c] : -INFINITY;
      if (x[i] > most) {
        most = x[i];
        first = c;
      }
    }
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
      const float other = __shfl_xor_sync(~0u, most, step);
      const int its = __shfl_xor_sync(~0u, first, step);
      if (other > most || (other == most && its < first)) {
        most = other;
        first = its;
      }
    }
    float total = 0, wanted = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int c = 8 * (i / 2) + 2 * l.t + i % 2;
      if (c == label) wanted = x[i] - most;
      x[i] = __expf(x[i] - most);
      total += x[i];
    }
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
      total += __shfl_xor_sync(~0u, total, step);
      wanted += __shfl_xor_sync(~0u, wanted, step);
    }
    const bool real = row < batch;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int c = 8 * (i / 2) + 2 * l.t + i % 2;
      x[i] = real ? __fdividef(x[i], total) - (c == label ? 1.0f : 0.0f) : 0.0f;
      columns[i] += x[i];
    }
    // a0, a1: rows g and g + 8 of columns 2 t; a2, a3: of columns 8 + 2 t.
    d[side] = pack<T>(x[0], x[1]);
    d[2 + side] = pack<T>(x[2], x[3]);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      *reinterpret_cast<uint32_t*>(d_tile + row * 32 + ((n ^ (row >> 2 & 1)) << 4) + 4 * l.t) =
          d[2 * n + side];
    }
    if (l.t == 0 && real) {
      sum += __logf(total) - wanted;
      correct += first == label ? 1 : 0;
    }
  }
#pragma unroll
  for (int step = 4; step <= 16; step *= 2) {
    sum += __shfl_xor_sync(~0u, sum, step);
    correct += __shfl_xor_sync(~0u, correct, step);
#pragma unroll
    for (float& each : columns) each += __shfl_xor_sync(~0u, each, step);
  }
  if (l.g != 0) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) rest.d_sums[l.warp][8 * (i / 2) + 2 * l.t + i % 2] = columns[i];
  if (l.t == 0) {
    rest.losses[l.warp] = sum;
    rest.corrects[l.warp] = correct;
  }
}

// dz[samples, units] = (d w2) [h > 0], as pairs that replace h, 64 units at a time to save
// registers.
template <typename T, int kUnits>
__device__ inline void multiply_dz(uint32_t w2, const uint32_t (&h)[kUnits / 16][4],
                                   uint32_t (&d)[1][4], uint32_t (&dz)[kUnits / 16][4]) {
#pragma unroll
  for (int part = 0; part < kUnits / 64; ++part) {
    float sums[32];
    const uint64_t b = wgmma_descriptor(w2 + part * (kClasses * 128), 16, 1024, 128);
    wgmma_fence();
    wgmma_register_operand<T, true>(sums, d[0], b, false);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_keep(sums);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // a0, a1: columns 16 k + 2 t of both rows; a2, a3: 8 further
        const int at = 4 * (2 * k + i / 2) + 2 * (i % 2);
        const float2 kept = unpack<T>(h[4 * part + k][i]);
        dz[4 * part + k][i] =
            pack<T>(kept.x > 0 ? sums[at] : 0.0f, kept.y > 0 ? sums[at + 1] : 0.0f);
      }
    }
  }
  wgmma_keep_operands(d);
}

}  // namespace ridgeline::cuda::population
