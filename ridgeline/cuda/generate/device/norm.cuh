#pragma once

// Normalisations of generated functions, between a linear layer and its activation. Statistics are
// taken over rows (layer and root-mean-square normalisation) or over columns (batch normalisation,
// kOverBatch). The output of the linear layer is stored, and a separate pass over strips of rows
// normalises it; the gradient works likewise. Sums over the batch are made from sums over the 16
// rows of each unit.

#include "ridgeline/cuda/generate/device/update.cuh"

namespace ridgeline::generated {

// Sums over the 16 rows of a unit, of which each lane has two; all lanes of a column receive the
// sums.
template <typename Value>
__device__ inline void unit_sums(Value (&v)[4]) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
#pragma unroll
    for (int off = 4; off < 32; off *= 2) v[c] += __shfl_xor_sync(~0u, v[c], off);
  }
}

// Stores two values per column of a unit: of[unit][2][kLd].
template <int kLd, typename Value>
__device__ inline void store_unit(Value* of, int row, int column, const Value (&a)[4],
                                  const Value (&b)[4]) {
  if (lane_of() >= 4) return;
  Value* to = of + i64(row >> 4) * 2 * kLd + column;
#pragma unroll
  for (int c = 0; c < 4; ++c) to[c] = a[c], to[kLd + c] = b[c];
}

// z = sum + bias, to be normalised. With kMoments this also stores the mean of each column over a
// unit's rows and the sum of squared deviations from it.
template <typename Math, typename L, typename Bias, int kBatch, bool kMoments>
struct Unnormalised {
  using Value = typename Math::Value;
  using Number = typename Math::Number;
  static constexpr int kUnits = 4, kAhead = 4, kRowEnd = whole_units(kBatch),
                       kColumnEnd = whole_units(L::kWidth);
  struct State {
    Value bias[4];
  };
  const Bias* bias;  // or null
  Number* z;         // rows of L::kSlopeLd from row `first` on
  int first;
  Value* moments;

  __device__ State prepare(int, int column) const {
    State state{};
    if (bias == nullptr) return state;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (L::kWidth % 16 == 0 || column + c < L::kWidth) state.bias[c] = widen(bias[column + c]);
    }
    return state;
  }
  __device__ void take(int row, int column, Block<Value> sum, const State& state) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        sum.v[r][c] = widen(Narrow<Number>::from(sum.v[r][c] + state.bias[c]));
      }
    }
    store_block<Math, kBatch, L::kWidth, L::kSlopeLd, 1, false>({z, nullptr, first}, row, column,
                                                                sum.v);
    if constexpr (kMoments) {
      const int rows = min(16, kBatch - (row & ~15));
      const bool in[2] = {(row & 15) < rows, (row & 15) + 1 < rows};
      Value mean[4], squares[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        mean[c] = (in[0] ? sum.v[0][c] : Value(0)) + (in[1] ? sum.v[1][c] : Value(0));
      }
      unit_sums(mean);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        mean[c] /= Value(rows);
        const Value a = sum.v[0][c] - mean[c], b = sum.v[1][c] - mean[c];
        squares[c] = (in[0] ? a * a : Value(0)) + (in[1] ? b * b : Value(0));
      }
      unit_sums(squares);
      store_unit<L::kSlopeLd>(moments, row, column, mean, squares);
    }
  }
};

// The operands of the normalisation of layer L.
template <typename Math, typename L, typename Kept, bool kOverBatch, bool kCentred, int kBatch>
struct NormLayer {
  using Value = typename Math::Value;
  using Number = typename Math::Number;
  static constexpr int kLd = L::kSlopeLd, kRowUnits = (kBatch + 15) / 16;
  static constexpr int kRowEnd = whole_units(kBatch);
  const Number* z;     // rows of kLd from row `first` on
  Value *mean, *rstd;  // per row from `first` on, or per column
  // Where to store the columns' statistics if a block works on its own copies, or null.
  Value *mean_out, *rstd_out;
  int first;
  const Kept *gamma, *beta;  // or null
  Value* moments;            // per unit, see Unnormalised; if kOverBatch
  Value* sums;               // sums over units of dy, and of dy times the normalised values
  double epsilon;

  // Loads a lane's columns; absent ones and those past the end are `otherwise`.
  static __device__ void load_columns(const Kept* from, int column, Value otherwise,
                                      Value (&v)[4]) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const bool real = from != nullptr && (L::kWidth % 16 == 0 || column + c < L::kWidth);
      v[c] = real ? Value(widen(from[column + c])) : otherwise;
    }
  }

  // The columns of part `part` of kParts.
  template <int kParts>
  static constexpr int kPartUnits = (kLd / 16 + kParts - 1) / kParts;

  // A block computes y = dropout(f(normalised z)) for rows row0 .. row0 + kRows - 1 and one part of
  // the columns. `scratch` has room for two values per row, or per column of the part.
  // `keep(column, mean, var)` is called once per column if kOverBatch.
  template <int kRows, int kParts, int kTransposedLd, typename Keep>
  __device__ void forward(int row0, int part, const Matrix<Math>& y, Number* slopes,
                          const Drop& drop, void* scratch, const Keep& keep) const {
    constexpr int kStatistics = kOverBatch ? 16 * kPartUnits<kParts> : kRows;
    Value* const means = static_cast<Value*>(scratch);
    Value* const rstds = means + kStatistics;
    const int begin = 16 * kPartUnits<kParts> * part,
              end = min(begin + 16 * kPartUnits<kParts>, kLd);
    if constexpr (kOverBatch) {
      for (int c = begin + thread_of(); c < end; c += kThreads) {
        Value at = Value(0), squares = Value(0);
#pragma unroll 8
        for (int unit = 0; unit < kRowUnits; ++unit) {
          at += Value(min(16, kBatch - 16 * unit)) * moments[i64(unit) * 2 * kLd + c];
        }
        at /= Value(kBatch);
#pragma unroll 8
        for (int unit = 0; unit < kRowUnits; ++unit) {
          const Value off = moments[i64(unit) * 2 * kLd + c] - at;
          squares += moments[(i64(unit) * 2 + 1) * kLd + c] +
                     Value(min(16, kBatch - 16 * unit)) * off * off;
        }
        const Value var = squares / Value(kBatch);
        means[c - begin] = at;
        rstds[c - begin] = Value(1) / sqrt_of(var + Value(epsilon));
        if (row0 == 0 || mean_out != nullptr) mean[c] = at, rstd[c] = rstds[c - begin];
        if (row0 == 0) {
          if (mean_out != nullptr) mean_out[c] = at, rstd_out[c] = rstds[c - begin];
          if (c < L::kWidth) keep(c, at, var);
        }
      }
    } else {
      const int lane = lane_of();
      constexpr int kFours = (kLd + 127) / 128;  // groups of four columns per lane
      constexpr int kTogether = kFours <= 8 ? 2 : 1;
#pragma unroll 1
      for (int r0 = warp_of(); r0 < kRows; r0 += kTogether * kWarps) {
        Four<Number> row[kTogether][kFours];
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
#pragma unroll
          for (int i = 0; i < kFours; ++i) {
            const int column = 4 * lane + 128 * i;
            row[k][i] = {};
            if (r0 + k * kWarps < kRows && column < kLd)
              row[k][i] =
                  Four<Number>::load(z + i64(row0 + r0 + k * kWarps - first) * kLd + column);
          }
        }
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          const int r = r0 + k * kWarps;
          if (r >= kRows) continue;
          Value at = Value(0), squares = Value(0);
          if constexpr (kCentred) {  // padding is zero
#pragma unroll
            for (int i = 0; i < kFours; ++i) {
              at += (row[k][i].value(0) + row[k][i].value(1)) +
                    (row[k][i].value(2) + row[k][i].value(3));
            }
            at = warp_sum(at) / Value(L::kWidth);
          }
#pragma unroll
          for (int i = 0; i < kFours; ++i) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
              const bool real = 4 * lane + 128 * i + c < L::kWidth;
              const Value off = real ? row[k][i].value(c) - at : Value(0);
              squares += off * off;
            }
          }
          squares = warp_sum(squares) / Value(L::kWidth);
          if (lane == 0) {
            means[r] = at;
            rstds[r] = Value(1) / sqrt_of(squares + Value(epsilon));
            if (part == 0) mean[row0 + r - first] = at, rstd[row0 + r - first] = rstds[r];
          }
        }
      }
    }
    __syncthreads();
    for_part_units<kRows, kParts>(row0, part, [&](int row, int column) {
      Value v[2][4], g[4], b[4];
      load_columns(gamma, column, Value(1), g);
      load_columns(beta, column, Value(0), b);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        load_four(z + i64(row + r - first) * kLd + column, v[r]);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int at = kOverBatch ? column + c - begin : row + r - row0;
          v[r][c] = (v[r][c] - means[at]) * rstds[at] * g[c] + b[c];
        }
      }
      store_outputs<Math, L, kBatch, kTransposedLd>(row, column, v, y, slopes, drop);
    });
  }

  // Computes dz for the same rows and columns from dn, the gradient of the normalised values, which
  // has the same row layout as dy. dn may be dy.rows if kParts is 1.
  template <int kRows, int kParts, int kTransposedLd, int kLdDy>
  __device__ void backward(int row0, int part, const Number* dn, const Matrix<Math>& dy,
                           void* scratch) const {
    constexpr int kStatistics = kOverBatch ? 16 * kPartUnits<kParts> : kRows;
    Value* const offs = static_cast<Value*>(scratch);
    Value* const alongs = offs + kStatistics;
    const int begin = 16 * kPartUnits<kParts> * part,
              end = min(begin + 16 * kPartUnits<kParts>, kLd);
    if constexpr (kOverBatch) {
      for (int c = begin + thread_of(); c < end; c += kThreads) {
        Value off = Value(0), along = Value(0);
#pragma unroll 8
        for (int unit = 0; unit < kRowUnits; ++unit) {
          off += sums[i64(unit) * 2 * kLd + c];
          along += sums[(i64(unit) * 2 + 1) * kLd + c];
        }
        offs[c - begin] = off / Value(kBatch), alongs[c - begin] = along / Value(kBatch);
      }
    } else {
      const int lane = lane_of();
#pragma unroll 1
      for (int r = warp_of(); r < kRows; r += kWarps) {
        const int row = row0 + r - first;
        const Value at = mean[row], factor = rstd[row];
        Value off = Value(0), along = Value(0);
#pragma unroll 2
        for (int column = 4 * lane; column < kLd; column += 128) {
          Value v[4], x[4], g[4];
          load_four(dn + i64(row0 + r - dy.first) * kLdDy + column, v);
          load_four(z + i64(row) * kLd + column, x);
          load_columns(gamma, column, Value(1), g);
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const Value each = column + c < L::kWidth ? v[c] * g[c] : Value(0);
            off += each;
            along += each * ((x[c] - at) * factor);
          }
        }
        off = warp_sum(off), along = warp_sum(along);
        if (lane == 0) {
          offs[r] = kCentred ? off / Value(L::kWidth) : Value(0);
          alongs[r] = along / Value(L::kWidth);
        }
      }
    }
    __syncthreads();
    for_part_units<kRows, kParts>(row0, part, [&](int row, int column) {
      Value v[2][4], g[4];
      load_columns(gamma, column, Value(1), g);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        Value x[4];
        load_four(z + i64(row + r - first) * kLd + column, x);
        load_four(dn + i64(row + r - dy.first) * kLdDy + column, v[r]);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int own = kOverBatch ? column + c : row + r - first;
          const int at = kOverBatch ? column + c - begin : row + r - row0;
          const Value factor = rstd[own], unit = (x[c] - mean[own]) * factor;
          if constexpr (kOverBatch) {
            v[r][c] = g[c] * factor * (v[r][c] - offs[at] - unit * alongs[at]);
          } else {
            v[r][c] = factor * (v[r][c] * g[c] - offs[at] - unit * alongs[at]);
          }
        }
      }
      store_block<Math, kBatch, L::kWidth, kLdDy, kTransposedLd, false>(dy, row, column, v);
    });
  }

 private:
  // Calls f(row, column) for the lane's part of each unit of the strip, except for rows past the
  // batch.
  template <int kRows, int kParts, typename F>
  static __device__ void for_part_units(int row0, int part, const F& f) {
    const int lane = lane_of();
    const int begin = kPartUnits<kParts> * part, end = min(begin + kPartUnits<kParts>, kLd / 16);
#pragma unroll 1
    for (int i = begin * (kRows / 16) + warp_of(); i < end * (kRows / 16); i += kWarps) {
      const int row = row0 + 16 * (i % (kRows / 16)), column = 16 * (i / (kRows / 16));
      if (row < kRowEnd) f(row + 2 * (lane >> 2), column + 4 * (lane & 3));
    }
  }
};

// Like Backward, for a layer below that is normalised: stores dn and its sums over the rows of a
// unit. NormLayer::backward later computes the gradient of the layer's own output.
template <typename Math, typename L, typename N, int kBatch, int kLdDy, bool kOverBatch>
struct NormBackward {
  using Value = typename Math::Value;
  using Number = typename Math::Number;
  using Below = Backward<Math, L, kBatch, 1, kLdDy>;
  static constexpr int kUnits = 2, kAhead = 2, kRowEnd = whole_units(kBatch),
                       kColumnEnd = whole_units(L::kWidth);
  struct State {
    typename Below::State below;
    Four<Number> z[2];
    Value mean[kOverBatch ? 4 : 2], rstd[kOverBatch ? 4 : 2];
  };
  Below below;
  N norm;

  __device__ State prepare(int row, int column) const {
    State state;
    state.below = below.prepare(row, column);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      state.z[r] = Four<Number>::load(norm.z + i64(row + r - norm.first) * N::kLd + column);
#pragma unroll
    for (int i = 0; i < (kOverBatch ? 4 : 2); ++i) {
      const int at = kOverBatch ? column + i : row + i - norm.first;
      state.mean[i] = norm.mean[at], state.rstd[i] = norm.rstd[at];
    }
    return state;
  }
  __device__ void take(int row, int column, Block<Value> dx, const State& state) const {
    below.bend_back(dx, state.below);
    Value off[4] = {}, along[4] = {};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const Value dn = row + r < kBatch ? widen(Narrow<Number>::from(dx.v[r][c])) : Value(0);
        const int i = kOverBatch ? c : r;
        off[c] += dn;
        along[c] += dn * ((state.z[r].value(c) - state.mean[i]) * state.rstd[i]);
      }
    }
    unit_sums(off);
    unit_sums(along);
    store_unit<N::kLd>(norm.sums, row, column, off, along);
    store_block<Math, kBatch, L::kWidth, kLdDy, 1, false>(below.dy, row, column, dx.v);
  }
};

// Computes the gradients of gamma and beta from the sums of units, and updates them. kStores as in
// BiasUpdate.
template <typename Math, typename Kept, typename Optimizer, int kWidth, int kLd, int kRowUnits,
          bool kStores>
struct NormUpdate {
  using Value = typename Math::Value;
  static constexpr int kEach = kRowUnits <= 2 ? 32 : 8;  // columns per warp
  static constexpr int kTasks = (kWidth + kEach - 1) / kEach;
  Tensor<Math, Kept, Optimizer> beta, gamma;
  const Value* sums;
  Optimizer optimizer;
  const Rates<Value>* rates;
  Value* gradients;  // [2][kLd]
  double* squares;

  __device__ void run(int first, int stride) const {
    const int lane = lane_of();
    for (int task = first; task < kTasks; task += stride) {
      const int column = kEach * task + lane % kEach;
      Value sum[2] = {Value(0), Value(0)};
#pragma unroll 4
      for (int unit = lane / kEach; unit < kRowUnits; unit += 32 / kEach) {
        if (column >= kLd) continue;
        sum[0] += sums[i64(unit) * 2 * kLd + column];
        sum[1] += sums[(i64(unit) * 2 + 1) * kLd + column];
      }
#pragma unroll
      for (int off = kEach; off < 32; off *= 2) {
        sum[0] += __shfl_xor_sync(~0u, sum[0], off);
        sum[1] += __shfl_xor_sync(~0u, sum[1], off);
      }
      if (lane >= kEach || column >= kWidth) continue;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const auto& tensor = k == 0 ? beta : gamma;
        if (tensor.w == nullptr) continue;
        if constexpr (kStores) {
          gradients[k * kLd + column] = sum[k];
          *squares += double(sum[k]) * double(sum[k]);
        } else {
          tensor.apply(column, sum[k], tensor.fetch(column), optimizer, *rates);
        }
      }
    }
  }
  __device__ void finish(int first, int stride) const {
    const int lane = lane_of();
    for (int task = first; task < kTasks; task += stride) {
      const int column = kEach * task + lane;
      if (lane >= kEach || column >= kWidth) continue;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const auto& tensor = k == 0 ? beta : gamma;
        if (tensor.w == nullptr) continue;
        tensor.apply(column, gradients[k * kLd + column], tensor.fetch(column), optimizer, *rates);
      }
    }
  }
};

// running += momentum * (now - running), stored in its own type.
template <typename Value, typename T>
__device__ inline void run_on(T* running, Value now, double momentum) {
  const Value before = Value(widen(*running));
  *running = Narrow<T>::from(before + Value(momentum) * (now - before));
}

}  // namespace ridgeline::generated
