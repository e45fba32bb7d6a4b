#pragma once

// What generated functions do with the results of products: the outputs of a layer, and the
// gradients of its inputs.

#include "ridgeline/cuda/generate/device/activation.cuh"
#include "ridgeline/cuda/generate/device/product.cuh"

namespace ridgeline::generated {

__host__ __device__ constexpr int whole_units(int extent) { return (extent + 15) / 16 * 16; }

// The kLd of operands that wgmma reads from shared memory: slabs of 64 rows of 128 bytes.
constexpr int kInSlabs = -1;

// Where element (row, column) of an operand with rows of kLd values lies. Rows of slabs are in the
// order that gives each lane the results of a unit that Block holds, with the 128-byte swizzle.
template <typename Number, int kLd>
__device__ inline int place(int row, int column) {
  if constexpr (kLd != kInSlabs) {
    return row * kLd + column;
  } else {
    constexpr int kUnit = 16 / int(sizeof(Number)), kRow = 8 * kUnit;
    const int at = (row & ~15) | (row & 1) << 3 | (row & 15) >> 1;
    return column / kRow * 64 * kRow + at * kRow + ((column % kRow / kUnit) ^ (at & 7)) * kUnit +
           column % kUnit;
  }
}

// A matrix of values for products: rows of kLd values and, for the products that give weight
// gradients, its transpose (with the batch along rows of kTransposedLd values). Either may be
// absent (null).
template <typename Math>
struct Matrix {
  using Number = typename Math::Number;
  Number* rows;        // from batch row `first` on
  Number* transposed;  // from batch row 0 on
  int first;
};

// Stores a lane's block. Elements past `rows` and `columns` are stored as zeros.
template <typename Math, int kRows, int kColumns, int kLd, int kTransposedLd, bool kOperand = true>
__device__ inline void store_block(const Matrix<Math>& to, int row, int column,
                                   const typename Math::Value (&v)[2][4]) {
  using Number = typename Math::Number;
  Number n[2][4];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const bool inside =
          (kRows % 16 == 0 || row + r < kRows) && (kColumns % 16 == 0 || column + c < kColumns);
      const typename Math::Value value = inside ? v[r][c] : typename Math::Value(0);
      n[r][c] = kOperand ? Math::operand(value) : Narrow<Number>::from(value);
    }
  }
  if (to.rows != nullptr) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      Number* at = to.rows + place<Number, kLd>(row + r - to.first, column);
      if constexpr (sizeof(Number) == 8) {
        reinterpret_cast<Pack<Number, 2>*>(at)[0] = {{n[r][0], n[r][1]}};
        reinterpret_cast<Pack<Number, 2>*>(at)[1] = {{n[r][2], n[r][3]}};
      } else {
        *reinterpret_cast<Pack<Number, 4>*>(at) = {{n[r][0], n[r][1], n[r][2], n[r][3]}};
      }
    }
  }
  if (to.transposed != nullptr) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      *reinterpret_cast<Pack<Number, 2>*>(to.transposed + i64(column + c) * kTransposedLd +
                                          row) = {{n[0][c], n[1][c]}};
    }
  }
}

// Four neighbouring values in their stored type: values that are prefetched must not be converted
// before they are used.
template <typename Number>
struct Four {
  Pack<Number, sizeof(Number) == 8 ? 2 : 4> part[sizeof(Number) == 8 ? 2 : 1];

  static __device__ Four load(const Number* at) { return *reinterpret_cast<const Four*>(at); }
  __device__ auto value(int c) const {
    return sizeof(Number) == 8 ? widen(part[c / 2 % (sizeof(Number) == 8 ? 2 : 1)].v[c % 2])
                               : widen(part[0].v[c % (sizeof(Number) == 8 ? 2 : 4)]);
  }
};
template <typename Number>
__device__ inline void load_four(const Number* at, decltype(widen(Number{})) (&v)[4]) {
  const Four<Number> four = Four<Number>::load(at);
#pragma unroll
  for (int c = 0; c < 4; ++c) v[c] = four.value(c);
}

template <typename Number>
__device__ inline void store_four(Number* to, const Number (&v)[4]) {
  Four<Number> four;
#pragma unroll
  for (int c = 0; c < 4; ++c)
    four.part[c / (sizeof(Number) == 8 ? 2 : 4)].v[c % (sizeof(Number) == 8 ? 2 : 4)] = v[c];
  *reinterpret_cast<Four<Number>*>(to) = four;
}

// Constants of a layer: its activation with its parameter, and whether f' is stored beside y
// (kSlopes) because it cannot be computed from y.
template <ActivationFn kActivation_, int kWidth_, int kLd_, int kSlopeLd_, bool kSlopes_,
          bool kDrops_, long long kParameter_>
struct Layer {
  static constexpr ActivationFn kActivation = kActivation_;
  static constexpr int kWidth = kWidth_, kLd = kLd_, kSlopeLd = kSlopeLd_;
  static constexpr bool kSlopes = kSlopes_, kDrops = kDrops_;
  // The bits of the activation's parameter, a double.
  static constexpr long long kParameter = kParameter_;
};

// Dropout of a layer at one step.
struct Drop {
  u64 seed, stream;
  float p;
  double kept;    // 1 / (1 - p)
  i64 first_row;  // in the global batch
};

// Stores y = dropout(f(v)) for a lane's block. `slopes` has the same rows as y.rows and is used if
// L::kSlopes.
template <typename Math, typename L, int kBatch, int kTransposedLd>
__device__ inline void store_outputs(int row, int column, typename Math::Value (&v)[2][4],
                                     const Matrix<Math>& y, typename Math::Number* slopes,
                                     const Drop& drop) {
  using Value = typename Math::Value;
  Value slope[2][4];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    bool keep[4] = {true, true, true, true};
    if constexpr (L::kDrops) {
      keep_four<L::kWidth % 4 == 0>(keep, drop.seed, drop.stream,
                                    u64(drop.first_row + row + r) * L::kWidth + column, drop.p);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      Value out =
          bend<L::kActivation>(v[r][c], slope[r][c], Value(__longlong_as_double(L::kParameter)));
      if constexpr (L::kDrops) {
        out = keep[c] ? out * Value(drop.kept) : Value(0);
        slope[r][c] = keep[c] ? slope[r][c] * Value(drop.kept) : Value(0);
      }
      v[r][c] = out;
    }
  }
  store_block<Math, kBatch, L::kWidth, L::kLd, kTransposedLd>(y, row, column, v);
  if constexpr (L::kSlopes) {
    store_block<Math, kBatch, L::kWidth, L::kSlopeLd, 1, false>({slopes, nullptr, y.first}, row,
                                                                column, slope);
  }
}

// y = dropout(f(sum + bias)).
template <typename Math, typename L, typename Bias, int kBatch, int kTransposedLd>
struct Forward {
  using Value = typename Math::Value;
  static constexpr int kUnits = 4, kAhead = 4, kRowEnd = whole_units(kBatch),
                       kColumnEnd = whole_units(L::kWidth);
  struct State {
    Value bias[4];
  };
  const Bias* bias;  // or null
  Matrix<Math> y;
  typename Math::Number* slopes;  // the same rows as y.rows; used if L::kSlopes
  Drop drop;

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
      for (int c = 0; c < 4; ++c) sum.v[r][c] += state.bias[c];
    }
    store_outputs<Math, L, kBatch, kTransposedLd>(row, column, sum.v, y, slopes, drop);
  }
};

// The last layer's outputs as values, in rows of kLd from row `first` on.
template <typename Math, typename L, typename Bias, int kBatch>
struct Outputs {
  using Value = typename Math::Value;
  static constexpr int kUnits = 4, kAhead = 4, kRowEnd = whole_units(kBatch),
                       kColumnEnd = whole_units(L::kWidth);
  struct State {
    Value bias[4];
  };
  const Bias* bias;
  Value* y;
  int first;

  __device__ State prepare(int, int column) const {
    State state{};
    if (bias == nullptr) return state;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (column + c < L::kWidth) state.bias[c] = widen(bias[column + c]);
    }
    return state;
  }
  __device__ void take(int row, int column, const Block<Value>& sum, const State& state) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c)
        y[(row + r - first) * L::kLd + column + c] = sum.v[r][c] + state.bias[c];
    }
  }
};

// dy of the layer below: dx times the slope of its activation. L is the layer below.
template <typename Math, typename L, int kBatch, int kTransposedLd, int kLdDy>
struct Backward {
  using Value = typename Math::Value;
  using Number = typename Math::Number;
  static constexpr int kUnits = 4, kAhead = 4, kRowEnd = whole_units(kBatch),
                       kColumnEnd = whole_units(L::kWidth);
  struct State {
    Four<Number> from[2];  // slopes, or y
  };
  const Number* y;       // from row `first` on
  const Number* slopes;  // likewise
  Matrix<Math> dy;
  double kept;

  __device__ State prepare(int row, int column) const {
    State state{};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (L::kSlopes) {
        state.from[r] = Four<Number>::load(slopes + (row + r - dy.first) * L::kSlopeLd + column);
      } else if constexpr (L::kActivation != ActivationFn::none) {
        state.from[r] = Four<Number>::load(y + place<Number, L::kLd>(row + r - dy.first, column));
      }
    }
    return state;
  }
  // Multiplies dx by the slopes.
  __device__ void bend_back(Block<Value>& dx, const State& state) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if constexpr (L::kSlopes) {
          dx.v[r][c] *= state.from[r].value(c);
        } else if constexpr (L::kActivation != ActivationFn::none) {
          dx.v[r][c] *= slope_at<L::kActivation>(Value(state.from[r].value(c)), Value(kept));
        }
      }
    }
  }
  __device__ void take(int row, int column, Block<Value> dx, const State& state) const {
    bend_back(dx, state);
    // Gradients are stored unrounded: products round them, sums for biases do not.
    store_block<Math, kBatch, L::kWidth, kLdDy, kTransposedLd, false>(dy, row, column, dx.v);
  }
};

// An element of a sample as a value: bytes are scaled and shifted, floats are taken unchanged.
template <typename Value>
__device__ inline Value sample_value(u8 byte, double scale, double shift) {
  if constexpr (sizeof(Value) == 8) return fma(Value(byte), Value(scale), Value(shift));
  return fmaf(float(byte), float(scale), float(shift));
}
template <typename Value>
__device__ inline Value sample_value(float number, double, double) {
  return Value(number);
}

// Four neighbouring numbers of a sample as they are fetched: taking them apart would wait for them.
template <typename Sample>
struct FourNumbers {
  Pack<Sample, 4> v;
  __device__ void fetch(const Sample* at) { v = *reinterpret_cast<const Pack<Sample, 4>*>(at); }
  __device__ void set(int c, Sample number) { v.v[c] = number; }
  __device__ Sample number(int c) const { return v.v[c]; }
};
template <>
struct FourNumbers<u8> {
  u32 v;
  __device__ void fetch(const u8* at) { v = *reinterpret_cast<const u32*>(at); }
  __device__ void set(int c, u8 number) { v |= u32(number) << 8 * c; }
  __device__ u8 number(int c) const { return u8(v >> 8 * c); }
};

// Converts a batch's rows to operands, from a set of bytes or floats. A lane's block is two rows by
// four features; a task is kTogether neighbouring blocks. Samples lie anywhere in the set, so that
// a warp waits for each of its rows: long batches have about as many tasks as the grid has warps.
template <typename Math, int kBatch, int kFeatures, int kLd, int kTransposedLd, typename Sample>
class Gather {
 public:
  using Value = typename Math::Value;
  static constexpr int kDown = (kBatch + 15) / 16, kAcross = (kFeatures + 15) / 16;
  static constexpr int kMost = sizeof(Sample) == 1 ? 16 : 4;       // blocks in registers
  static constexpr int kPerRow = kDown < 1024 ? 1024 / kDown : 1;  // tasks of 16 rows
  static constexpr int kWhole = (kAcross + kPerRow - 1) / kPerRow;
  static constexpr int kTogether = kDown * kAcross < 1024 ? 1 : kWhole < kMost ? kWhole : kMost;
  static constexpr int kGroups = (kAcross + kTogether - 1) / kTogether, kTasks = kDown * kGroups;

  const Sample* set;
  const i32* order;
  double scale, shift;
  Matrix<Math> x;

  // Tasks `first`, `first + stride`, and so on, before `end`.
  __device__ void run(int first, int stride, int end = kTasks) const {
    for (int task = first; task < end; task += stride) store(task, load(task));
  }

 private:
  struct Samples {
    FourNumbers<Sample> v[kTogether][2];
  };
  static __device__ int row_of(int task) { return 16 * (task / kGroups) + 2 * (lane_of() >> 2); }
  static __device__ int column_of(int task) {
    return 16 * kTogether * (task % kGroups) + 4 * (lane_of() & 3);
  }
  __device__ Samples load(int task) const {
    const int row = row_of(task), column = column_of(task);
    Samples samples{};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (row + r >= kBatch) continue;
      const Sample* from = set + i64(order[row + r]) * kFeatures + column;
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        if constexpr (kFeatures % 4 == 0) {
          if (kFeatures % (16 * kTogether) == 0 || column + 16 * u < kFeatures) {
            samples.v[u][r].fetch(from + 16 * u);
          }
        } else {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            if (column + 16 * u + c < kFeatures) samples.v[u][r].set(c, from[16 * u + c]);
          }
        }
      }
    }
    return samples;
  }
  __device__ void store(int task, const Samples& samples) const {
    const int row = row_of(task), column = column_of(task);
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      if (column - 4 * (lane_of() & 3) + 16 * u >= 16 * kAcross) continue;
      Value v[2][4];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          v[r][c] = sample_value<Value>(samples.v[u][r].number(c), scale, shift);
        }
      }
      store_block<Math, kBatch, kFeatures, kLd, kTransposedLd>(x, row, column + 16 * u, v);
    }
  }
};

}  // namespace ridgeline::generated
