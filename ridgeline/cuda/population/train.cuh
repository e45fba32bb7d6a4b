#pragma once

#include "ridgeline/cuda/population/train.h"

// One step of a member, by the 8 warps of a block. The bytes of the samples are multiplied as the
// whole numbers they are, which fp16 holds exactly, and `scale` is applied to sums.
//
//   z = scale X w1^T + b1     X [128, 784] from L2, w1 from shared memory: 32 samples x 64 hidden a
//   warp h = relu(z)               stays in registers, as operands of the next product logits = h
//   w2^T + b2      the two halves of the hidden layer meet in shared memory d = softmax - one-hot
//   not divided by the batch: the rate is, so that fp16 has no small numbers dz = (d w2) [h > 0] w2
//   -= rate d^T h,  w1 -= rate scale dz^T X     32 hidden x 32 inputs a warp at a time
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
