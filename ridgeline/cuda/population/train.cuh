#pragma once

// clang-format off
// One step of a member, by the 8 warps of a block. The bytes of the samples are multiplied as the
// whole numbers they are, which fp16 holds exactly, and `scale` is applied to sums.
//
//   z = scale X w1^T + b1     X [128, 784] from L2, w1 from shared memory: 32 samples x 64 hidden a warp
//   h = relu(z)               stays in registers, as operands of the next product
//   logits = h w2^T + b2      the two halves of the hidden layer meet in shared memory
//   d = softmax - one-hot     not divided by the batch: the rate is, so that fp16 has no small numbers
//   dz = (d w2) [h > 0]
//   w2 -= rate d^T h,  w1 -= rate scale dz^T X     32 hidden x 32 inputs a warp at a time
// clang-format on

#include "ridgeline/cuda/population/forward.cuh"
#include "ridgeline/cuda/population/updates.cuh"

namespace ridgeline::cuda::population {

__device__ inline void step(const PopulationTraining& p, Shared& s, const Lane& l, int member,
                            int number) {
  const int now = number % 2;
  const float rate = p.rates[int64_t(member) * p.steps + number], decay = p.decays[member];
  uint32_t h[2][8][2];  // packed pairs: rows g and g + 8
  {
    Hidden z;
    first_layer(p, s, now, l, z);
    // Where the next batch lies is known long before it is wanted.
    if (threadIdx.x < kBatch && number + 1 < p.steps) {
      const int32_t sample =
          p.order[member * p.order_stride + int64_t(number + 1) * kBatch + threadIdx.x];
      s.samples[1 - now][threadIdx.x] = sample;
      s.labels[1 - now][threadIdx.x] = uint8_t(p.labels[sample]);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 bias = *reinterpret_cast<const float2*>(s.b1 + 64 * l.half + 8 * n + 2 * l.t);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          h[m][n][side] = pack(fmaxf(0.0f, p.scale * z[m][n][2 * side] + bias.x),
                               fmaxf(0.0f, p.scale * z[m][n][2 * side + 1] + bias.y));
        }
      }
    }
  }
  {
    float part[2][2][4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const __half* w = s.w2 + (8 * n + l.g) * kW2Row + 64 * l.half + 16 * k + 2 * l.t;
        const uint32_t b0 = *reinterpret_cast<const uint32_t*>(w),
                       b1 = *reinterpret_cast<const uint32_t*>(w + 8);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          multiply(part[m][n], h[m][2 * k][0], h[m][2 * k][1], h[m][2 * k + 1][0],
                   h[m][2 * k + 1][1], b0, b1);
        }
      }
    }
    auto* to = reinterpret_cast<float*>(s.staged) + l.half * kBatch * kClasses;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const int row = l.samples + 16 * m + 8 * side + l.g;
          *reinterpret_cast<float2*>(to + row * kClasses + 8 * n + 2 * l.t) = {
              part[m][n][2 * side], part[m][n][2 * side + 1]};
        }
      }
    }
  }
  __syncthreads();
  uint32_t d[2][4];
  loss(p, s, now, l, d);
  uint32_t dz[2][8][2];
#pragma unroll
  for (int n = 0; n < 8; n += 2) {
    uint32_t b[4];  // of w2: 16 classes x 16 hidden
    load_transposed(
        b, s.w2 + (8 * (l.matrix % 2) + l.row) * kW2Row + 64 * l.half + 8 * n + 8 * (l.matrix / 2));
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum[4] = {0, 0, 0, 0};
        multiply(sum, d[m][0], d[m][1], d[m][2], d[m][3], b[2 * i], b[2 * i + 1]);
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const float2 kept = unpack(h[m][n + i][side]);
          dz[m][n + i][side] =
              pack(kept.x > 0 ? sum[2 * side] : 0.0f, kept.y > 0 ? sum[2 * side + 1] : 0.0f);
        }
      }
    }
  }
  __syncthreads();  // the logits and w2 are read
  if (threadIdx.x < p.classes) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += s.d_sums[i][threadIdx.x];
    s.b2[threadIdx.x] -= rate * sum / kBatch;
  }
  if (threadIdx.x == 0) {
    const int64_t at = int64_t(member) * p.steps + number;
    p.losses[at] = (s.losses[0] + s.losses[1] + s.losses[2] + s.losses[3]) / kBatch;
    p.corrects[at] = s.corrects[0] + s.corrects[1] + s.corrects[2] + s.corrects[3];
  }
  uint32_t columns[2][8][4];  // dz transposed: 32 hidden x 128 samples
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    if (l.half == half) stage_hidden(s, l, h);
    __syncthreads();
    update_w2(p, s, l, half, rate, decay);
    __syncthreads();
    if (l.half == half) stage_hidden(s, l, dz);
    __syncthreads();
    if (l.hidden / 64 == half) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          load_columns(s, l, 16 * k, l.hidden % 64 + 16 * m, columns[m][k]);
        }
      }
    }
    __syncthreads();
  }
  update_b1(s, l, columns, rate);
  const float scale = p.scale / kBatch;
  uint4 bytes[2] = {};
  fetch(p, s, now, 0, bytes);
#pragma unroll 1
  for (int c = 0; c < kWhole; ++c) {
    stage_inputs(s, c, bytes);
    __syncthreads();
    fetch(p, s, now, c + 1, bytes);
    update_w1<4>(s, l, c, l.inputs, columns, scale, rate, decay);
    __syncthreads();
  }
  stage_inputs(s, kWhole, bytes);
  __syncthreads();
  if (l.inputs == 0) update_w1<2>(s, l, kWhole, 0, columns, scale, rate, decay);
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads, 1)
    population_train_mlp_kernel(const PopulationTraining p) {
#if __CUDA_ARCH__ >= 900  // others have less shared memory
  extern __shared__ __align__(16) char memory[];
  auto& s = *reinterpret_cast<Shared*>(memory);
  const Lane l;
  constexpr int kPacks = kInputs / 8;  // of 8 numbers in a row of w1
  for (int member = blockIdx.x; member < p.members; member += gridDim.x) {
    auto* w1 = reinterpret_cast<uint4*>(p.w1 + int64_t(member) * kHidden * kInputs);
    __half* w2 = p.w2 + int64_t(member) * p.classes * kHidden;
    for (int i = threadIdx.x; i < kHidden * kPacks; i += kThreads) {
      *reinterpret_cast<uint4*>(s.w1 + i / kPacks * kW1Row + i % kPacks * 8) = w1[i];
    }
    for (int i = threadIdx.x; i < kClasses * kHidden; i += kThreads) {
      const int c = i / kHidden;
      s.w2[c * kW2Row + i % kHidden] = c < p.classes ? w2[i] : __half(0.0f);
    }
    if (threadIdx.x < kHidden) s.b1[threadIdx.x] = p.b1[member * kHidden + threadIdx.x];
    if (threadIdx.x < kClasses) {
      s.b2[threadIdx.x] =
          int(threadIdx.x) < p.classes ? p.b2[member * p.classes + threadIdx.x] : 0.0f;
    }
    if (threadIdx.x < kBatch) {
      const int32_t sample = p.order[member * p.order_stride + threadIdx.x];
      s.samples[0][threadIdx.x] = sample;
      s.labels[0][threadIdx.x] = uint8_t(p.labels[sample]);
    }
    __syncthreads();
    for (int number = 0; number < p.steps; ++number) step(p, s, l, member, number);
    for (int i = threadIdx.x; i < kHidden * kPacks; i += kThreads) {
      w1[i] = *reinterpret_cast<const uint4*>(s.w1 + i / kPacks * kW1Row + i % kPacks * 8);
    }
    for (int i = threadIdx.x; i < p.classes * kHidden; i += kThreads) {
      w2[i] = s.w2[i / kHidden * kW2Row + i % kHidden];
    }
    if (threadIdx.x < kHidden) p.b1[member * kHidden + threadIdx.x] = s.b1[threadIdx.x];
    if (int(threadIdx.x) < p.classes) p.b2[member * p.classes + threadIdx.x] = s.b2[threadIdx.x];
    __syncthreads();  // before the next member's weights come
  }
#endif
}

}  // namespace ridgeline::cuda::population
