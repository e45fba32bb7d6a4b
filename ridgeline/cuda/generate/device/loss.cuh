#pragma once

// Losses of generated functions, over a strip of rows in shared memory.

#include "ridgeline/cuda/generate/device/layers.cuh"

namespace ridgeline::generated {

// The contribution of a strip of rows to the step's loss.
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

// Reductions over the kLanes neighbouring lanes that share a row; all of them receive the result.
template <int kLanes, typename A>
__device__ inline A lanes_sum(A value) {
#pragma unroll
  for (int off = kLanes / 2; off > 0; off /= 2) value += __shfl_xor_sync(~0u, value, off);
  return value;
}

// The lanes per row: as many as it has classes, up to a warp.
__host__ __device__ constexpr int lanes_for(int classes) {
  int lanes = 1;
  while (lanes < classes && lanes < 32) lanes *= 2;
  return lanes;
}

// Stores element (r, c) of a strip's gradient, which is in batch row dy.first + r.
template <typename Math, int kBatch, int kLdDy, int kTransposedLd>
__device__ inline void store_gradient(const Matrix<Math>& dy, int r, int c,
                                      typename Math::Value value) {
  using Number = typename Math::Number;
  const Number n = Narrow<Number>::from(dy.first + r < kBatch ? value : typename Math::Value(0));
  if (dy.rows != nullptr) dy.rows[place<Number, kLdDy>(r, c)] = n;
  if (dy.first + r < whole_units(kBatch)) {
    dy.transposed[i64(c) * kTransposedLd + dy.first + r] = n;
  }
}

// Stores zeros from column kFrom on, which products read.
template <typename Math, int kFrom, int kLanes, int kLdDy>
__device__ inline void pad_gradient(const Matrix<Math>& dy, int r, int lane) {
  using Number = typename Math::Number;
  if (dy.rows == nullptr) return;
#pragma unroll
  for (int c = kFrom + lane; c < whole_units(kFrom); c += kLanes) {
    dy.rows[place<Number, kLdDy>(r, c)] = Narrow<Number>::from(typename Math::Value(0));
  }
}

// Calls f(r) for the rows of a strip, with kLanes lanes per row. All lanes of a warp make the same
// number of calls, so that they may exchange values; r may be past the strip.
template <int kRows, int kLanes, typename F>
__device__ inline void for_rows(F f) {
  constexpr int kPass = kThreads / kLanes;  // rows at a time
  const int first = thread_of() / kLanes;
#pragma unroll 1
  for (int r = first; r - first < kRows; r += kPass) f(r);
}

// A lane's outputs of a row, at columns lane, lane + kLanes, and so on, and the first index of the
// row's maximum, which is kColumns if all are NaN.
template <typename A, int kColumns, int kLanes>
struct RowOutputs {
  static constexpr int kEach = (kColumns + kLanes - 1) / kLanes;
  A v[kEach];
  A most;
  int place = kColumns;

  __device__ RowOutputs(const A* x, int lane) {
    most = -A(__int_as_float(0x7f800000));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int c = lane + i * kLanes;
      v[i] = c < kColumns ? x[c] : -A(__int_as_float(0x7f800000));
      most = v[i] > most ? v[i] : most;
    }
#pragma unroll
    for (int off = kLanes / 2; off > 0; off /= 2) {
      const A other = __shfl_xor_sync(~0u, most, off);
      most = other > most ? other : most;
    }
#pragma unroll
    for (int i = kEach; i-- > 0;) {
      const int c = lane + i * kLanes;
      place = v[i] == most && c < kColumns ? c : place;
    }
#pragma unroll
    for (int off = kLanes / 2; off > 0; off /= 2) {
      const int other = __shfl_xor_sync(~0u, place, off);
      place = other < place ? other : place;
    }
  }
};

// Softmax cross-entropy. Row r of the strip, for which `logits` has kLd values, is batch row
// dy.first + r. dy receives the gradient times `scale`; row_loss and row_correct receive the row's
// contributions.
template <typename Math, int kBatch, int kRows, int kClasses, int kLd, int kLdDy, int kTransposedLd>
__device__ inline void xent_strip(const typename Math::Value* logits, const i32* labels,
                                  double scale, const Matrix<Math>& dy, double* row_loss,
                                  i32* row_correct) {
  using A = typename Math::Value;
  constexpr int kLanes = lanes_for(kClasses);
  using Row = RowOutputs<A, kClasses, kLanes>;
  const int lane = thread_of() % kLanes;
  const A factor = A(scale);
  for_rows<kRows, kLanes>([&](int r) {
    const bool here = r < kRows;
    const int label = here ? labels[r] : 0;
    const A* x = logits + (here ? r : 0) * kLd;
    const Row row(x, lane);
    A e[Row::kEach], sum = A(0);
#pragma unroll
    for (int i = 0; i < Row::kEach; ++i) {
      e[i] = lane + i * kLanes < kClasses ? exp_of(row.v[i] - row.most) : A(0);
      sum += e[i];
    }
    sum = lanes_sum<kLanes>(sum);
    if (!here) return;
#pragma unroll
    for (int i = 0; i < Row::kEach; ++i) {
      const int c = lane + i * kLanes;
      if (c >= kClasses) continue;
      const A off = e[i] / sum - (c == label ? A(1) : A(0));
      store_gradient<Math, kBatch, kLdDy, kTransposedLd>(dy, r, c, factor * off);
    }
    pad_gradient<Math, kClasses, kLanes, kLdDy>(dy, r, lane);
    if (lane == 0) {
      const bool inside = dy.first + r < kBatch;
      row_loss[r] = inside ? double(log_of(sum) + row.most - x[label]) : 0.0;
      row_correct[r] = inside && row.place == label;
    }
  });
}

// Element-wise losses, as ops/loss.h defines them.
enum class ElementLoss { mse, mae, huber, bce_with_logits, quantile };

// The loss of x; `slope` becomes its derivative.
template <ElementLoss kLoss, typename A>
__device__ inline A element_loss(A x, A target, A weight, A delta, A& slope) {
  const A off = x - target, size = off < A(0) ? -off : off;
  const A sign = off > A(0) ? A(1) : off < A(0) ? A(-1) : off;  // NaN stays NaN
  if constexpr (kLoss == ElementLoss::mse) {
    slope = A(2) * off;
    return off * off;
  } else if constexpr (kLoss == ElementLoss::mae) {
    slope = sign;
    return size;
  } else if constexpr (kLoss == ElementLoss::huber) {
    slope = size > delta ? delta * sign : off;
    return size > delta ? delta * (size - A(0.5) * delta) : A(0.5) * off * off;
  } else if constexpr (kLoss == ElementLoss::bce_with_logits) {
    const A part = (weight - A(1)) * target + A(1), rest = A(1) - target;
    slope = rest - part * sigmoid_of(-x);
    const A softplus = log1p_of(exp_of(x < A(0) ? x : -x)) + (x < A(0) ? -x : A(0));
    return rest * x + part * softplus;
  } else {
    const A w = off < A(0) ? weight : A(1) - weight;
    slope = w * sign;
    return w * size;
  }
}

// The target of an element-wise loss.
template <typename A>
struct ElementTargets {
  const i32* labels;      // one per row of the strip, or
  const A* values;        // kColumns per row
  const double* weights;  // kWeights values, or null
  double delta;
};

// An element-wise loss, with the interface of xent_strip. kColumns: values of a row's target; if
// there are fewer than outputs, neighbouring outputs share one. 0: labels that stand for one-hot
// rows.
template <typename Math, ElementLoss kLoss, int kBatch, int kRows, int kOut, int kLd, int kLdDy,
          int kTransposedLd, int kColumns, int kWeights>
__device__ inline void element_loss_strip(const typename Math::Value* outputs,
                                          const ElementTargets<typename Math::Value>& targets,
                                          double scale, const Matrix<Math>& dy, double* row_loss,
                                          i32* row_correct) {
  using A = typename Math::Value;
  constexpr int kLanes = lanes_for(kOut);
  using Row = RowOutputs<A, kOut, kLanes>;
  const int lane = thread_of() % kLanes;
  const A factor = A(scale);
  for_rows<kRows, kLanes>([&](int r) {
    const bool here = r < kRows;
    const int label = here && kColumns == 0 ? targets.labels[r] : 0;
    const Row row(outputs + (here ? r : 0) * kLd, lane);
    A sum = A(0);
#pragma unroll
    for (int i = 0; i < Row::kEach; ++i) {
      const int c = lane + i * kLanes;
      if (!here || c >= kOut) continue;
      A target = c == label ? A(1) : A(0);
      if constexpr (kColumns > 0) target = targets.values[r * kColumns + c / (kOut / kColumns)];
      A weight = A(1), slope;
      if constexpr (kWeights > 0) weight = A(targets.weights[c % kWeights]);
      sum += element_loss<kLoss>(row.v[i], target, weight, A(targets.delta), slope);
      store_gradient<Math, kBatch, kLdDy, kTransposedLd>(dy, r, c, factor * slope);
    }
    sum = lanes_sum<kLanes>(sum);
    if (!here) return;
    pad_gradient<Math, kOut, kLanes, kLdDy>(dy, r, lane);
    if (lane == 0) {
      const bool inside = dy.first + r < kBatch;
      row_loss[r] = inside ? double(sum) : 0.0;
      row_correct[r] = inside && kColumns == 0 && row.place == label;
    }
  });
}

// Adds the contributions of a strip's rows, with one warp, after a barrier that follows them.
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

// Called by one warp, after the strips of all blocks.
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
