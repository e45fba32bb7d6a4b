#pragma once

// Optimizer steps of generated kernels, where gradients are made.

#include "ridgeline/cuda/generate/device/loss.cuh"
#include "ridgeline/cuda/generate/device/tiled_product.cuh"

namespace ridgeline::generated {

// n / d and the square root of v >= 0, to within an ulp in fp32 without a branch: the exact ones
// take most of the code of an update. Numbers below 2^-126 count as 0.
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
  return v < 1.1754944e-38f && v >= 0.0f ? 0.0f : better;  // a NaN stays one
}
__device__ inline double root(double v) { return sqrt(v); }

// The numbers of one step, the same for all weights; made by one thread of a block, see
// ops/update.h.
template <typename A>
struct Rates {
  A lr, scale, rate, second;  // rate: lr / (1 - beta1^t); second: 1 - beta2^t
  i32 skip, last;             // last: of the launch
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
  return {A(lr), A(1), A(0), A(1), 0, 0};
}
template <typename A>
__device__ inline Rates<A> adam_rates(double lr, double beta1, double beta2, i64 step) {
  Rates<A> rates{A(lr), A(1), A(0), A(0), 0, 0};
  rates.rate = A(lr) / A(1.0 - (sizeof(A) == 8 ? pow(beta1, double(step)) : power(beta1, step)));
  rates.second = A(1.0 - (sizeof(A) == 8 ? pow(beta2, double(step)) : power(beta2, step)));
  return rates;
}

// States of a weight: none, m, or m and v.
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

// A tensor as the program keeps it, and what products read of it.
template <typename Math, typename Kept, typename Copy>
struct Weights {
  using Value = typename Math::Value;
  Kept* w;  // [out, in], as its states
  Value *m, *v;
  Copy* copy;                         // the program's, written in a launch's last step; or null
  typename Math::Number* rows;        // [out][kLd]
  typename Math::Number* transposed;  // [in][kTransposedLd]; null where no gradient goes through
};

// The gradient of a layer's weights, unit by unit, and their update. With kStores it is kept for
// finish() instead, until the norm of all gradients is known, and `squares` grows by its squares.
template <typename Math, typename Kept, typename Copy, typename Optimizer, int kOut, int kIn,
          int kLd, int kTransposedLd, bool kStores>
struct Update {
  using Value = typename Math::Value;
  static constexpr int kStates = Optimizer::kStates;
  static constexpr int kUnits = kStores ? 4 : 2, kRowEnd = whole_units(kOut),
                       kColumnEnd = whole_units(kIn);
  struct State {
    Value w[2][4], s[kStates > 0 ? kStates : 1][2][4];
  };
  Weights<Math, Kept, Copy> weights;
  Optimizer optimizer;
  const Rates<Value>* rates;
  Value* gradients;  // [kOut][kIn rounded up to 16]
  double* squares;

  static constexpr int kGradientLd = (kIn + 15) / 16 * 16;

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
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (!inside(row + r, column + c)) continue;
          gradients[i64(row + r) * kGradientLd + column + c] = g.v[r][c];
          sum += double(g.v[r][c]) * double(g.v[r][c]);
        }
      }
      *squares += sum;
    } else {
      State next = state;
      apply(row, column, g, next);
    }
  }
  // Of the unit whose gradient this lane stored.
  __device__ void finish(int row, int column) const {
    State state = fetch(row, column);
    Block<Value> g{};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (inside(row + r, column + c))
          g.v[r][c] = gradients[i64(row + r) * kGradientLd + column + c];
      }
    }
    apply(row, column, g, state);
  }

 private:
  static constexpr bool kFours = kIn % 4 == 0;
  static __device__ bool inside(int row, int column) {
    return (kOut % 16 == 0 || row < kOut) && (kIn % 16 == 0 || column < kIn);
  }
  template <typename T>
  static __device__ void load(const T* from, int row, int column, Value (&v)[2][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (kFours) {
        if (inside(row + r, column)) load_four(from + i64(row + r) * kIn + column, v[r]);
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (inside(row + r, column + c)) v[r][c] = widen(from[i64(row + r) * kIn + column + c]);
        }
      }
    }
  }
  template <typename T>
  static __device__ void store(T* to, int row, int column, const Value (&v)[2][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      T n[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) n[c] = Narrow<T>::from(v[r][c]);
      T* at = to + i64(row + r) * kIn + column;
      if (kFours) {
        if (!inside(row + r, column)) continue;
        if constexpr (sizeof(T) == 8) {
          reinterpret_cast<Pack<T, 2>*>(at)[0] = {{n[0], n[1]}};
          reinterpret_cast<Pack<T, 2>*>(at)[1] = {{n[2], n[3]}};
        } else {
          *reinterpret_cast<Pack<T, 4>*>(at) = {{n[0], n[1], n[2], n[3]}};
        }
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (inside(row + r, column + c)) at[c] = n[c];
        }
      }
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
    if (now.skip == 0) {
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
    if (weights.copy != nullptr && now.last != 0) store(weights.copy, row, column, state.w);
  }
};

// The gradient of a bias, the sum of dy over the batch, and its update: more lanes an output the
// more rows the batch has. With kStores likewise.
template <typename Math, typename Kept, typename Optimizer, int kOut, int kTransposedLd,
          int kChunks, bool kStores>
struct BiasUpdate {
  using Value = typename Math::Value;
  using Number = typename Math::Number;
  static constexpr int kLanes = kChunks <= 4 ? 4 : kChunks <= 8 ? 8 : kChunks <= 16 ? 16 : 32;
  static constexpr int kEach = 32 / kLanes;  // outputs a warp
  static constexpr int kTasks = (kOut + kEach - 1) / kEach;
  Kept* b;
  Value *m, *v;
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
      Now now{};
      if (!kStores && mine) now = fetch(row);
      Value sum = Value(0);
#pragma unroll 4
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
        apply(row, sum, now);
      }
    }
  }
  __device__ void finish(int first, int stride) const {
    const int lane = lane_of();
    for (int task = first; task < kTasks; task += stride) {
      const int row = kEach * task + lane / kLanes;
      if (lane % kLanes == 0 && row < kOut) apply(row, gradients[row], fetch(row));
    }
  }

 private:
  struct Now {
    Value b, s[2];
  };
  __device__ Now fetch(int row) const {
    Now now{Value(widen(b[row])), {}};
    if constexpr (Optimizer::kStates > 0) now.s[0] = m[row];
    if constexpr (Optimizer::kStates > 1) now.s[1] = v[row];
    return now;
  }
  __device__ void apply(int row, Value g, Now now) const {
    const Rates<Value> at = *rates;
    if (at.skip != 0) return;
    b[row] = Narrow<Kept>::from(optimizer.update(now.b, g, now.s, at));
    if constexpr (Optimizer::kStates > 0) m[row] = now.s[0];
    if constexpr (Optimizer::kStates > 1) v[row] = now.s[1];
  }
};

// Units of the tiles of G, a Grid or Tiled, once more, by the lanes that had them, for
// Update::finish.
template <typename G, typename E>
__device__ inline void finish_units(int first, int stride, const E& e) {
  const int lane = lane_of();
  G::for_units(first, stride, [&](int row, int column) {
    e.finish(row + 2 * (lane >> 2), column + 4 * (lane & 3));
  });
}

// GlobalNorm behind its sum of squares, as ops/grad_scale.h has it. Every block works it out from
// the same numbers.
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

// The sum over a block in all of its threads.
__device__ inline double block_sum(double value, double* scratch) {
  value = warp_sum(value);
  __syncthreads();  // the sums before have been read
  if (lane_of() == 0) scratch[warp_of()] = value;
  __syncthreads();
  value = 0;
  for (int w = 0; w < kWarps; ++w) value += scratch[w];
  return value;
}

// Weights as products read them, from the program's, before the first step. Pads were zeroed.
template <typename Math, typename Kept, int kOut, int kIn, int kLd, int kTransposedLd>
__device__ inline void spread_weights(const Kept* w, typename Math::Number* rows,
                                      typename Math::Number* transposed, int first, int stride) {
  for (i64 i = first; i < i64(kOut) * kIn; i += stride) {
    const int out = int(i / kIn), in = int(i % kIn);
    const typename Math::Number n = Math::operand(widen(w[i]));
    rows[i64(out) * kLd + in] = n;
    if (transposed != nullptr) transposed[i64(in) * kTransposedLd + out] = n;
  }
}

__device__ inline void clear(uint4* from, i64 count, int first, int stride) {
  for (i64 i = first; i < count; i += stride) from[i] = uint4{0, 0, 0, 0};
}

}  // namespace ridgeline::generated
