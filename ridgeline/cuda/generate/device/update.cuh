#pragma once

// Optimizer steps of generated functions, applied where the gradients are computed.

#include "ridgeline/cuda/generate/device/loss.cuh"
#include "ridgeline/cuda/generate/device/state_access.cuh"
#include "ridgeline/cuda/generate/device/tiled_product.cuh"

namespace ridgeline::generated {

// n / d and the square root of v >= 0, accurate to an ulp in fp32 without a branch: the exact
// functions would take most of the code of an update. Values below 2^-126 count as 0.
__device__ inline float quotient(float n, float d) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  r = fmaf(r, fmaf(-d, r, 1.0f), r);
  const float q = n * r;
  return fmaf(r, fmaf(-d, q, n), q);
}
__device__ inline double quotient(double n, double d) { return n / d; }
__device__ inline float root(float v) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  const float s = v * r;
  const float better = fmaf(0.5f * r, fmaf(-s, s, v), s);
  return v < 1.1754944e-38f && v >= 0.0f ? 0.0f : better;  // NaN stays NaN
}
__device__ inline double root(double v) { return sqrt(v); }

// The values of one step that are the same for all weights; one thread of a block computes them,
// see ops/update.h.
template <typename A>
struct Rates {
  A lr, scale, rate, second;  // rate: lr / (1 - beta1^t); second: 1 - beta2^t
  i32 skip;
};

__device__ inline double power(double base, i64 n) {
  double result = 1;
  for (; n > 0; n /= 2, base *= base) {
    if (n % 2 == 1) result *= base;
  }
  return result;
}

template <typename A>
__device__ inline Rates<A> sgd_rates(double lr) {
  return {A(lr), A(1), A(0), A(1), 0};
}
template <typename A>
__device__ inline Rates<A> adam_rates(double lr, double beta1, double beta2, i64 step) {
  Rates<A> rates{A(lr), A(1), A(0), A(0), 0};
  rates.rate = A(lr) / A(1.0 - (sizeof(A) == 8 ? pow(beta1, double(step)) : power(beta1, step)));
  rates.second = A(1.0 - (sizeof(A) == 8 ? pow(beta2, double(step)) : power(beta2, step)));
  return rates;
}

// The optimizer states of a weight: none, m, or m and v.
template <bool kMomentum, bool kNesterov>
struct Sgd {
  static constexpr int kStates = kMomentum ? 1 : 0;
  double momentum, decay;
  template <typename A>
  __device__ A update(A w, A g, A* s, const Rates<A>& rates) const {
    g = g * rates.scale + A(decay) * w;
    if constexpr (kMomentum) {
      s[0] = A(momentum) * s[0] + g;
      g = kNesterov ? g + A(momentum) * s[0] : s[0];
    }
    return w - rates.lr * g;
  }
};
template <bool kDecoupled>
struct Adam {
  static constexpr int kStates = 2;
  double gain1, gain2, epsilon, decay;  // 1 - beta1, 1 - beta2
  template <typename A>
  __device__ A update(A w, A g, A* s, const Rates<A>& rates) const {
    g = g * rates.scale;
    if constexpr (kDecoupled) {
      w -= rates.lr * A(decay) * w;
    } else {
      g += A(decay) * w;
    }
    s[0] += A(gain1) * (g - s[0]);
    s[1] += A(gain2) * (g * g - s[1]);
    return w - quotient(rates.rate * s[0], root(quotient(s[1], rates.second)) + A(epsilon));
  }
};

// The offset of element (row, column) of a matrix that is stored unit by unit, each in the order in
// which its lanes hold it: 256 consecutive values, of which a warp fetches 128 at a time. kAcross:
// units per row.
template <int kAcross>
__device__ inline i64 in_units(int row, int column) {
  return (i64(row >> 4) * kAcross + (column >> 4)) * 256 + (row & 1) * 128 +
         ((row & 15) >> 1) * 16 + (column & 15);
}

// Weights and their states during a launch, stored unit by unit, and the copies that products read.
template <typename Math, typename Kept>
struct Weights {
  using Value = typename Math::Value;
  Kept* w;
  Value *m, *v;
  typename Math::Number* rows;        // [out][kLd]
  typename Math::Number* transposed;  // [in][kTransposedLd]; null if no gradient passes through
};

// Computes the gradient of a layer's weights, unit by unit, and updates them. With kStores the
// gradient is stored for finish() instead, until its kParts parts can be added or the norm of all
// gradients is known; for the norm, `squares` is increased by its squares.
template <typename Math, typename Kept, typename Optimizer, int kOut, int kIn, int kLd,
          int kTransposedLd, bool kStores, int kParts, int kLeaving>
struct Update {
  using Value = typename Math::Value;
  static constexpr int kStates = Optimizer::kStates;
  // An fp32 Adam state takes 24 registers.
  static constexpr int kUnits = kStores ? 4 : 2,
                       kAhead = kStores              ? 1
                                : sizeof(Value) == 8 ? 1
                                                     : 3,
                       kRowEnd = whole_units(kOut), kColumnEnd = whole_units(kIn);
  struct State {
    Value w[2][4], s[kStates > 0 ? kStates : 1][2][4];
  };
  Weights<Math, Kept> weights;
  Optimizer optimizer;
  const Rates<Value>* rates;
  Value* gradients;  // kParts matrices, stored unit by unit
  double* squares;   // or null
  int part = 0;

  __device__ State prepare(int row, int column) const {
    if constexpr (kStores) {
      return State{};
    } else {
      return fetch(row, column);
    }
  }
  __device__ void take(int row, int column, const Block<Value>& g, const State& state) const {
    if constexpr (kStores) {
      double sum = 0;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        store_four(gradient_at(part, row + r, column), g.v[r]);
#pragma unroll
        for (int c = 0; squares != nullptr && c < 4; ++c) {
          if (inside(row + r, column + c)) sum += double(g.v[r][c]) * double(g.v[r][c]);
        }
      }
      if (squares != nullptr) *squares += sum;
    } else {
      State next = state;
      apply(row, column, g, next);
    }
  }
  // Applies the updates from stored gradients, after a grid barrier: units `first`, `first +
  // stride`, and so on, of which a warp has two in flight, or one of many parts.
  __device__ void finish(int first, int stride) const {
    constexpr int kAll = kRowEnd / 16 * kAcross;
    constexpr int kTogether = sizeof(Value) == 8 || kParts > 4 ? 1 : 2;
    const int lane = lane_of();
#pragma unroll 1
    for (int unit = first; unit < kAll; unit += kTogether * stride) {
      State states[kTogether];
      Block<Value> g[kTogether];
      int rows[kTogether], columns[kTogether];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const int now = min(unit + u * stride, kAll - 1);
        rows[u] = 16 * (now / kAcross) + 2 * (lane >> 2);
        columns[u] = 16 * (now % kAcross) + 4 * (lane & 3);
        states[u] = fetch(rows[u], columns[u]);
        g[u] = {};
#pragma unroll 8
        for (int p = 0; p < kParts; ++p) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            Value v[4];
            load_four(gradient_at(p, rows[u] + r, columns[u]), v);
#pragma unroll
            for (int c = 0; c < 4; ++c) g[u].v[r][c] += v[c];
          }
        }
      }
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        if (unit + u * stride < kAll) apply(rows[u], columns[u], g[u], states[u]);
      }
    }
  }

 private:
  static constexpr int kAcross = kColumnEnd / 16;
  __device__ Value* gradient_at(int part, int row, int column) const {
    return gradients + i64(part) * kRowEnd * kColumnEnd + in_units<kAcross>(row, column);
  }
  static __device__ bool inside(int row, int column) {
    return (kOut % 16 == 0 || row < kOut) && (kIn % 16 == 0 || column < kIn);
  }
  template <typename T>
  static __device__ void load(const T* from, int row, int column, Value (&v)[2][4]) {
    const StateAccess<kLeaving> access;
#pragma unroll
    for (int r = 0; r < 2; ++r) access.load(from + in_units<kAcross>(row + r, column), v[r]);
  }
  template <typename T>
  static __device__ void store(T* to, int row, int column, const Value (&v)[2][4]) {
    const StateAccess<kLeaving> access;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      T n[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) n[c] = Narrow<T>::from(v[r][c]);
      access.store(to + in_units<kAcross>(row + r, column), n);
    }
  }
  __device__ State fetch(int row, int column) const {
    State state{};
    load(weights.w, row, column, state.w);
    if constexpr (kStates > 0) load(weights.m, row, column, state.s[0]);
    if constexpr (kStates > 1) load(weights.v, row, column, state.s[1]);
    return state;
  }
  __device__ void apply(int row, int column, const Block<Value>& g, State& state) const {
    const Rates<Value> now = *rates;
    if (now.skip != 0) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        Value s[kStates > 0 ? kStates : 1];
#pragma unroll
        for (int k = 0; k < kStates; ++k) s[k] = state.s[k][r][c];
        const Value w = optimizer.update(state.w[r][c], g.v[r][c], s, now);
        state.w[r][c] = widen(Narrow<Kept>::from(w));
#pragma unroll
        for (int k = 0; k < kStates; ++k) state.s[k][r][c] = s[k];
      }
    }
    store(weights.w, row, column, state.w);
    if constexpr (kStates > 0) store(weights.m, row, column, state.s[0]);
    if constexpr (kStates > 1) store(weights.v, row, column, state.s[1]);
    store_block<Math, kOut, kIn, kLd, kTransposedLd>({weights.rows, weights.transposed, 0}, row,
                                                     column, state.w);
  }
};

// A tensor with one value per output, and its states.
template <typename Math, typename Kept, typename Optimizer>
struct Tensor {
  using Value = typename Math::Value;
  Kept* w;
  Value *m, *v;

  struct Now {
    Value w, s[2];
  };
  __device__ Now fetch(int row) const {
    Now now{Value(widen(w[row])), {}};
    if constexpr (Optimizer::kStates > 0) now.s[0] = m[row];
    if constexpr (Optimizer::kStates > 1) now.s[1] = v[row];
    return now;
  }
  // Returns the new value.
  __device__ Value apply(int row, Value g, Now now, const Optimizer& optimizer,
                         const Rates<Value>& rates) const {
    if (rates.skip != 0) return now.w;
    const Kept kept = Narrow<Kept>::from(optimizer.update(now.w, g, now.s, rates));
    w[row] = kept;
    if constexpr (Optimizer::kStates > 0) m[row] = now.s[0];
    if constexpr (Optimizer::kStates > 1) v[row] = now.s[1];
    return Value(widen(kept));
  }
};

// Computes the gradient of a bias, which is the sum of dy over the batch, and updates it. The
// larger the batch, the more lanes share an output. kStores as above.
template <typename Math, typename Kept, typename Optimizer, int kOut, int kTransposedLd,
          int kChunks, bool kStores>
struct BiasUpdate {
  using Value = typename Math::Value;
  using Number = typename Math::Number;
  static constexpr int kLanes = kChunks <= 4 ? 4 : kChunks <= 8 ? 8 : kChunks <= 16 ? 16 : 32;
  static constexpr int kEach = 32 / kLanes;  // outputs per warp
  static constexpr int kTasks = (kOut + kEach - 1) / kEach;
  Tensor<Math, Kept, Optimizer> bias;
  const Number* dy;  // [out][kTransposedLd]
  Optimizer optimizer;
  const Rates<Value>* rates;
  Value* gradients;
  double* squares;

  __device__ void run(int first, int stride) const {
    const int lane = lane_of(), t = lane % kLanes;
    constexpr int kLane = 16 / int(sizeof(Number)), kVectors = kChunks * 4;
    for (int task = first; task < kTasks; task += stride) {
      const int row = kEach * task + lane / kLanes;
      const bool mine = t == 0 && row < kOut;
      typename Tensor<Math, Kept, Optimizer>::Now now{};
      if (!kStores && mine) now = bias.fetch(row);
      Value sum = Value(0);
#pragma unroll 16
      for (int vector = t; vector < kVectors; vector += kLanes) {
        const uint4 raw =
            *reinterpret_cast<const uint4*>(dy + i64(row) * kTransposedLd + vector * kLane);
        const Number* n = reinterpret_cast<const Number*>(&raw);
#pragma unroll
        for (int i = 0; i < kLane; ++i) sum += widen(n[i]);
      }
      sum = lanes_sum<kLanes>(sum);
      if (!mine) continue;
      if constexpr (kStores) {
        gradients[row] = sum;
        *squares += double(sum) * double(sum);
      } else {
        bias.apply(row, sum, now, optimizer, *rates);
      }
    }
  }
  __device__ void finish(int first, int stride) const {
    const int lane = lane_of();
    for (int task = first; task < kTasks; task += stride) {
      const int row = kEach * task + lane / kLanes;
      if (lane % kLanes == 0 && row < kOut) {
        bias.apply(row, gradients[row], bias.fetch(row), optimizer, *rates);
      }
    }
  }
};

// GlobalNorm after its sum of squares, as in ops/grad_scale.h. Every block computes it from the
// same values.
struct Norm {
  double norm, scale, loss_scale;
  i64 clipped, good, skipped;

  __device__ Norm(double sum, double max_norm, bool scaled, i64 growth, double scale_now,
                  i64 clipped_now, i64 good_now, i64 skipped_now)
      : loss_scale(scale_now), clipped(clipped_now), good(good_now), skipped(skipped_now) {
    norm = sqrt(sum) / loss_scale;
    if (!(norm <= 1.7976931348623157e308)) {
      scale = scaled ? 0.0 : sum * 0.0;
      skipped += scaled ? 1 : 0;
      good = 0;
      if (growth > 0) loss_scale /= 2;
      return;
    }
    const bool clips = max_norm < norm;
    clipped += clips ? 1 : 0;
    scale = (clips ? max_norm / norm : 1.0) / loss_scale;
    good += 1;
    if (growth > 0 && good == growth) {
      loss_scale *= 2;
      good = 0;
    }
  }
};

// The sum over a block; all of its threads receive it.
__device__ inline double block_sum(double value, double* scratch) {
  value = warp_sum(value);
  __syncthreads();  // the previous sums have been read
  if (lane_of() == 0) scratch[warp_of()] = value;
  __syncthreads();
  value = 0;
  for (int w = 0; w < kWarps; ++w) value += scratch[w];
  return value;
}

// Converts weights and states from the program's rows before the first step, and makes the copies
// that products read. The padding of those copies has been zeroed; the padding of the others is
// zero as well.
template <typename Math, typename Kept, int kOut, int kIn, int kLd, int kTransposedLd>
__device__ inline void take_weights(const Kept* w, const typename Math::Value* m,
                                    const typename Math::Value* v, const Weights<Math, Kept>& to,
                                    int first, int stride) {
  using Value = typename Math::Value;
  constexpr int kRows = whole_units(kOut), kColumns = whole_units(kIn);
  for (int i = first; i < kRows * kColumns; i += stride) {
    const int row = i / kColumns, column = i % kColumns;
    const bool real = row < kOut && column < kIn;
    const i64 from = i64(row) * kIn + column, at = in_units<kColumns / 16>(row, column);
    const Kept kept = real ? w[from] : Kept{};
    to.w[at] = kept;
    if (m != nullptr) to.m[at] = real ? m[from] : Value(0);
    if (v != nullptr) to.v[at] = real ? v[from] : Value(0);
    if (!real) continue;
    const typename Math::Number n = Math::operand(widen(kept));
    to.rows[i64(row) * kLd + column] = n;
    if (to.transposed != nullptr) to.transposed[i64(column) * kTransposedLd + row] = n;
  }
}

// Converts them back after the last step, together with the copy that the program's products read
// (or null).
template <typename Math, typename Kept, typename Copy, int kOut, int kIn>
__device__ inline void give_weights(const Weights<Math, Kept>& from, Kept* w,
                                    typename Math::Value* m, typename Math::Value* v, Copy* copy,
                                    int first, int stride) {
  constexpr int kColumns = whole_units(kIn);
  for (int i = first; i < kOut * kColumns; i += stride) {
    const int row = i / kColumns, column = i % kColumns;
    if (column >= kIn) continue;
    const i64 to = i64(row) * kIn + column, at = in_units<kColumns / 16>(row, column);
    w[to] = from.w[at];
    if (m != nullptr) m[to] = from.m[at];
    if (v != nullptr) v[to] = from.v[at];
    if (copy != nullptr) copy[to] = Narrow<Copy>::from(widen(from.w[at]));
  }
}

__device__ inline void clear(uint4* from, i64 count, int first, int stride) {
  for (i64 i = first; i < count; i += stride) from[i] = uint4{0, 0, 0, 0};
}

}  // namespace ridgeline::generated
