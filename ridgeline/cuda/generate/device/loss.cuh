#pragma once

// Losses of generated kernels, over a strip of rows in shared memory.

#include "ridgeline/cuda/generate/device/layers.cuh"

namespace ridgeline::generated {

// What a strip of rows adds to the step's loss.
struct Score {
  double loss;
  i32 correct, unused;
};

template <typename A>
__device__ inline A warp_sum(A value) {
#pragma unroll
  for (int off = 16; off > 0; off /= 2) value += __shfl_xor_sync(~0u, value, off);
  return value;
}

// Reductions over the kLanes neighbouring lanes that share a row; all of them get the result.
template <int kLanes, typename A>
__device__ inline A lanes_sum(A value) {
#pragma unroll
  for (int off = kLanes / 2; off > 0; off /= 2) value += __shfl_xor_sync(~0u, value, off);
  return value;
}

// As many lanes a row as it has classes, up to a warp.
__host__ __device__ constexpr int lanes_for(int classes) {
  int lanes = 1;
  while (lanes < classes && lanes < 32) lanes *= 2;
  return lanes;
}

// kXent: softmax cross-entropy, else squares of differences from one-hot rows. Row r of the strip,
// of which `logits` has kLd values, is batch row first + r. dy gets the gradient times `scale`;
// score the strip's sum, unscaled.
template <typename Math, bool kXent, int kBatch, int kRows, int kClasses, int kLd, int kLdDy,
          int kTransposedLd>
__device__ inline void loss_strip(const typename Math::Value* logits, const i32* labels,
                                  double scale, const Matrix<Math>& dy, double* row_loss,
                                  i32* row_correct) {
  using A = typename Math::Value;
  using Number = typename Math::Number;
  constexpr int kPadded = whole_units(kClasses), kLanes = lanes_for(kClasses),
                kEach = (kClasses + kLanes - 1) / kLanes;
  constexpr int kPass = kThreads / kLanes;  // rows at a time
  const int thread = thread_of(), lane = thread % kLanes;
  const A factor = A(kXent ? scale : 2 * scale);
#pragma unroll 1
  for (int r = thread / kLanes; r < kRows + kPass - 1;
       r += kPass) {  // all lanes of a warp go round equally often
    if (r - thread / kLanes >= kRows) break;
    const bool here = r < kRows, inside = here && dy.first + r < kBatch;
    const int label = here ? labels[r] : 0;
    const A* x = logits + (here ? r : 0) * kLd;
    A v[kEach], most = -A(__int_as_float(0x7f800000));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int c = lane + i * kLanes;
      v[i] = c < kClasses ? x[c] : -A(__int_as_float(0x7f800000));
      most = v[i] > most ? v[i] : most;
    }
#pragma unroll
    for (int off = kLanes / 2; off > 0; off /= 2) {
      const A other = __shfl_xor_sync(~0u, most, off);
      most = other > most ? other : most;
    }
    // The first place of the largest; none among NaNs.
    int place = kClasses;
#pragma unroll
    for (int i = kEach; i-- > 0;)
      place = v[i] == most && lane + i * kLanes < kClasses ? lane + i * kLanes : place;
#pragma unroll
    for (int off = kLanes / 2; off > 0; off /= 2) {
      const int other = __shfl_xor_sync(~0u, place, off);
      place = other < place ? other : place;
    }
    A e[kEach], sum = A(0);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int c = lane + i * kLanes;
      const A target = c == label ? A(1) : A(0);
      if constexpr (kXent) {
        e[i] = c < kClasses ? exp_of(v[i] - most) : A(0);
        sum += e[i];
      } else {
        e[i] = c < kClasses ? v[i] - target : A(0);
        sum += e[i] * e[i];
      }
    }
    sum = lanes_sum<kLanes>(sum);
    if (here) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int c = lane + i * kLanes;
        if (c >= kClasses) continue;
        const A off = kXent ? e[i] / sum - (c == label ? A(1) : A(0)) : e[i];
        const Number n = Narrow<Number>::from(inside ? factor * off : A(0));
        if (dy.rows != nullptr) dy.rows[r * kLdDy + c] = n;
        if (dy.first + r < whole_units(kBatch))
          dy.transposed[i64(c) * kTransposedLd + dy.first + r] = n;
      }
      if (dy.rows != nullptr) {
#pragma unroll
        for (int c = kClasses + lane; c < kPadded; c += kLanes)
          dy.rows[r * kLdDy + c] = Narrow<Number>::from(A(0));
      }
      if (lane == 0) {
        row_loss[r] = !inside ? 0.0 : kXent ? double(log_of(sum) + most - x[label]) : double(sum);
        row_correct[r] = inside && place == label;
      }
    }
  }
}

// What a strip's rows add up to, by one warp, any barrier after them.
template <int kRows>
__device__ inline void add_rows(const double* row_loss, const i32* row_correct, Score* score) {
  const int lane = lane_of();
  double loss = 0;
  i32 correct = 0;
  for (int r = lane; r < kRows; r += 32) loss += row_loss[r], correct += row_correct[r];
  loss = warp_sum(loss);
  correct = warp_sum(correct);
  if (lane == 0) *score = {loss, correct, 0};
}

// One warp, after the strips of all blocks.
__device__ inline void write_score(const Score* scores, int count, double scale, double* loss,
                                   i32* correct) {
  double sum = 0;
  i32 hits = 0;
  for (int i = lane_of(); i < count; i += 32) sum += scores[i].loss, hits += scores[i].correct;
  sum = warp_sum(sum);
  hits = warp_sum(hits);
  if (lane_of() != 0) return;
  *loss = scale * sum;
  if (correct != nullptr) *correct = hits;
}

}  // namespace ridgeline::generated
