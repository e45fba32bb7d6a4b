#pragma once

// The first layer of a member, and its loss.

#include "ridgeline/cuda/population/block.cuh"

namespace ridgeline::cuda::population {

// z without scale and bias.
__device__ inline void first_layer(const PopulationTraining& p, const Shared& s, int now,
                                   const Lane& l, Hidden& z) {
  const uint8_t* x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = p.inputs + int64_t(s.samples[now][l.samples + 8 * i + l.g]) * kInputs;
  }
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    for (int n = 0; n < 8; ++n) {
      for (float& each : z[m][n]) each = 0;
    }
  }
  uint4 bytes[4], next[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) bytes[i] = *reinterpret_cast<const uint4*>(x[i] + 16 * l.t);
#pragma unroll 1
  for (int c = 0; c < kWhole; ++c) {
    if (c + 1 < kWhole) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        next[i] = *reinterpret_cast<const uint4*>(x[i] + (c + 1) * kChunk + 16 * l.t);
      }
    }
    // Sixteen neighbouring inputs belong to a lane; which input the tensor core takes a number for
    // does not matter, as long as both operands agree.
    const __half* w = s.w1 + (64 * l.half + l.g) * kW1Row + c * kChunk + 16 * l.t;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      uint32_t a[2][2][4];  // two samples of 16, two steps of the sum
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const auto word = [&](const uint4& b) {
            return part == 0 ? (k == 0 ? b.x : b.y) : (k == 0 ? b.z : b.w);
          };
          const uint32_t low = word(bytes[2 * m]), high = word(bytes[2 * m + 1]);
          a[m][k][0] = to_halves<0>(low);
          a[m][k][1] = to_halves<0>(high);
          a[m][k][2] = to_halves<1>(low);
          a[m][k][3] = to_halves<1>(high);
        }
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const uint4 b = *reinterpret_cast<const uint4*>(w + 8 * n * kW1Row + 8 * part);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          multiply(z[m][n], a[m][0][0], a[m][0][1], a[m][0][2], a[m][0][3], b.x, b.y);
          multiply(z[m][n], a[m][1][0], a[m][1][1], a[m][1][2], a[m][1][3], b.z, b.w);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) bytes[i] = next[i];
  }
  uint32_t left[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    left[i] = *reinterpret_cast<const uint32_t*>(x[i] + kWhole * kChunk + 4 * l.t);
  }
  const __half* w = s.w1 + (64 * l.half + l.g) * kW1Row + kWhole * kChunk + 4 * l.t;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const uint2 b = *reinterpret_cast<const uint2*>(w + 8 * n * kW1Row);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      multiply(z[m][n], to_halves<0>(left[2 * m]), to_halves<0>(left[2 * m + 1]),
               to_halves<1>(left[2 * m]), to_halves<1>(left[2 * m + 1]), b.x, b.y);
    }
  }
}

// Rows l.samples + 16 m + l.g (+ 8) of the softmax; columns 8 n + 2 l.t (+ 1). Writes d to shared
// memory and to `d`, and what this warp adds to the loss, the correct ones and the gradient of b2.
__device__ inline void loss(const PopulationTraining& p, Shared& s, int now, const Lane& l,
                            uint32_t (&d)[2][4]) {
  const auto* part = reinterpret_cast<const float*>(s.staged);
  float sum = 0, columns[4] = {0, 0, 0, 0};
  int correct = 0;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int row = l.samples + 16 * m + 8 * side + l.g, label = s.labels[now][row];
      float x[4], most = -INFINITY;
      int first = kClasses;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int c = 8 * (i / 2) + 2 * l.t + i % 2;
        x[i] = part[row * kClasses + c] + part[(kBatch + row) * kClasses + c] + s.b2[c];
        if (c >= p.classes) x[i] = -INFINITY;
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
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int c = 8 * (i / 2) + 2 * l.t + i % 2;
        x[i] = __fdividef(x[i], total) - (c == label ? 1.0f : 0.0f);
        columns[i] += x[i];
      }
      // a0, a1: rows g and g + 8 of columns 2t; a2, a3: of columns 8 + 2t.
      d[m][side] = pack(x[0], x[1]);
      d[m][2 + side] = pack(x[2], x[3]);
      if (l.half == 0) {
        auto* to = reinterpret_cast<uint32_t*>(s.d + row * kClasses);
        to[l.t] = d[m][side];
        to[4 + l.t] = d[m][2 + side];
      }
      if (l.t == 0) {
        sum += __logf(total) - wanted;
        correct += first == label ? 1 : 0;
      }
    }
  }
  if (l.half != 0) return;
#pragma unroll
  for (int step = 4; step <= 16; step *= 2) {
    sum += __shfl_xor_sync(~0u, sum, step);
    correct += __shfl_xor_sync(~0u, correct, step);
#pragma unroll
    for (float& each : columns) each += __shfl_xor_sync(~0u, each, step);
  }
  if (l.g != 0) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) s.d_sums[l.warp][8 * (i / 2) + 2 * l.t + i % 2] = columns[i];
  if (l.t == 0) {
    s.losses[l.warp] = sum;
    s.corrects[l.warp] = correct;
  }
}

}  // namespace ridgeline::cuda::population
