// A tile of a recurrent timestep and the cells' functions, compiled once per instruction set.
#if defined(RIDGELINE_CPU_SIMD_RECURRENT_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CPU_SIMD_RECURRENT_STEP_INL_H_
#undef RIDGELINE_CPU_SIMD_RECURRENT_STEP_INL_H_
#else
#define RIDGELINE_CPU_SIMD_RECURRENT_STEP_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/depth-inl.h"
#include "ridgeline/cpu/simd/gate-inl.h"
#include "ridgeline/cpu/simd/recurrent.h"
#include "ridgeline/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Hidden units of a tile, all gates of each, by two vectors of the batch. 32 registers hold the
// sums of 8 or 9 rows; 16 hold those of 6, which is half of an LSTM's twelve: four rows, those of
// one unit, are too few to keep a core with two hyperthreads busy (58 of 101 GFLOP/s; 80 with
// six).
constexpr int units_of(CellKind cell) {
  switch (cell) {
    case CellKind::lstm:
      return kManyRegisters ? 2 : 3;
    case CellKind::gru:
      return kManyRegisters ? 3 : 2;
    default:
      return kTileRows;
  }
}
// A buffer for the sums of a tile between registers and functions, so that one copy of the
// functions serves every tile.
template <int kRows, int kVectors, typename T>
struct RnnSums {
  static constexpr int64_t kWidth = kVectors * int64_t(hn::MaxLanes(Tag<T>()));
  HWY_ALIGN T at[kRows][kWidth];

  template <int kPart>
  HWY_INLINE void store(int first, const Vec<T> (&acc)[kPart][kVectors]) {
    const Tag<T> d;
    RIDGELINE_UNROLL
    for (int m = 0; m < kPart; ++m) {
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) hn::Store(acc[m][j], d, at[first + m] + j * hn::Lanes(d));
    }
  }
};

template <CellKind kCell>
struct RnnStepTile {
  static constexpr int kGates = int(gates(kCell)), kUnits = units_of(kCell);
  static constexpr int kRows = kGates * kUnits;
  static constexpr int kParts = !kManyRegisters && kRows > kTileRows ? 2 : 1;
  static constexpr int kPartRows = kRows / kParts;

  // Handles a block of the depth; between blocks the sums are kept in the gates' memory.
  template <int kVectors, typename T>
  static HWY_NOINLINE void run(const RnnStepArgs<T>& a, int64_t tile, int64_t panel, int64_t column,
                               Range depth) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d)), unit = tile * kUnits;
    const int64_t units = std::min<int64_t>(kUnits, a.hidden - unit);
    using Sums = RnnSums<kRows, kVectors, T>;
    Sums sums;
    const bool ends = depth.end == a.hidden;
    run_part<0>(a, tile, panel, column, depth, ends, sums);
    if constexpr (kParts == 2) run_part<1>(a, tile, panel, column, depth, ends, sums);
    if (!ends) return;
    // Each function runs by itself before those that combine several gates, so that many units and
    // samples overlap.
    apply(sums.at[0], Sums::kWidth, kUnits, kVectors * lanes);
    for (int64_t u = 0; u < units; ++u) {
      for (int64_t j = 0; j < kVectors; ++j) {
        finish(a, sums.at[u] + j * lanes, kUnits * Sums::kWidth, unit + u, panel,
               column + j * lanes);
      }
    }
  }

  // Computes the rows of a part of the tile.
  template <int kPart, int kVectors, typename T>
  static HWY_INLINE void run_part(const RnnStepArgs<T>& a, int64_t tile, int64_t panel,
                                  int64_t column, Range depth, bool ends,
                                  RnnSums<kRows, kVectors, T>& sums) {
    const Tag<T> d;
    constexpr int kFirst = kPart * kPartRows;
    const int64_t lanes = int64_t(hn::Lanes(d)), H = a.hidden, unit = tile * kUnits;
    const int64_t units = std::min<int64_t>(kUnits, H - unit);
    T* gates = a.gates + panel * gate_vectors(kCell) * H * kPanel<T> + column;
    const bool starts = depth.begin == 0;
    const auto sum_at = [&](int64_t gate, int64_t u) HWY_ATTR {
      return gates + ((of_state_only(gate) ? 3 : gate) * H + unit + u) * kPanel<T>;
    };
    Vec<T> acc[kPartRows][kVectors];
    RIDGELINE_UNROLL
    for (int m = 0; m < kPartRows; ++m) {
      const int64_t u = (kFirst + m) % kUnits, gate = (kFirst + m) / kUnits;
      const bool alone = of_state_only(gate);
      const T bias = alone && a.bias_hn != nullptr && u < units ? a.bias_hn[unit + u] : T(0);
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) acc[m][j] = hn::Set(d, starts ? bias : T(0));
      // The products with the input are added at the end, when they have come from a far cache.
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) hwy::Prefetch(sum_at(gate, u) + j * lanes);
    }
    accumulate<kPartRows, kVectors, Along::m, T>(
        depth.end - depth.begin,
        a.w + packed_at(packed_count(H, kUnits), tile, kRows, depth) + kFirst, kRows,
        a.h + (panel * H + depth.begin) * kPanel<T> + column, kPanel<T>, acc);
    RIDGELINE_UNROLL
    for (int m = 0; m < kPartRows; ++m) {
      const int64_t u = (kFirst + m) % kUnits, gate = (kFirst + m) / kUnits;
      if ((starts && of_state_only(gate)) || u >= units) continue;
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        acc[m][j] = hn::Add(acc[m][j], hn::LoadU(d, sum_at(gate, u) + j * lanes));
      }
    }
    if (ends) return sums.store(kFirst, acc);
    RIDGELINE_UNROLL
    for (int m = 0; m < kPartRows; ++m) {
      const int64_t u = (kFirst + m) % kUnits;
      if (u >= units) continue;
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        hn::StoreU(acc[m][j], d, sum_at((kFirst + m) / kUnits, u) + j * lanes);
      }
    }
  }

  // Applies the functions of gates that need only their own sums, in place: `count` sums of each of
  // `units`, whose rows are `width` apart.
  template <typename T>
  static HWY_INLINE void apply(T* sums, int64_t width, int64_t units, int64_t count) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d));
    const auto each = [&](int64_t first, int64_t end, auto f) HWY_ATTR {
      for (int64_t row = first * units; row < end * units; ++row) {
        for (T* at = sums + row * width; at < sums + row * width + count; at += lanes) {
          hn::StoreU(f(hn::LoadU(d, at)), d, at);
        }
      }
    };
    const auto sigmoid = [&](Vec<T> x) HWY_ATTR { return gate_sigmoid(d, x); };
    const auto tanh = [&](Vec<T> x) HWY_ATTR { return gate_tanh(d, x); };
    if constexpr (kCell == CellKind::gru) {
      each(0, 2, sigmoid);
    } else if constexpr (kCell == CellKind::lstm) {
      each(0, 2, sigmoid);
      each(2, 3, tanh);
      each(3, 4, sigmoid);
    }
  }

  // gru: the sum that the reset gate multiplies does not include x.
  static constexpr bool of_state_only(int64_t gate) { return kCell == CellKind::gru && gate == 2; }

  // Starts from sums[gate][kPanel units][kPanel] of h alone.
  template <typename T>
  static HWY_NOINLINE void finish_units(const RnnStepArgs<T>& a, const T* sums, Range units,
                                        int64_t panel) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d)), H = a.hidden;
    const Range columns = columns_of<T>(a.samples, panel);
    HWY_ALIGN T own[kGates * hn::MaxLanes(d)];
    for (int64_t unit = units.begin; unit < units.end; ++unit) {
      const T* of_x = a.gates + (panel * gate_vectors(kCell) * H + unit) * kPanel<T>;
      for (int64_t column = columns.begin; column < columns.end; column += lanes) {
        RIDGELINE_UNROLL
        for (int64_t gate = 0; gate < kGates; ++gate) {
          const Vec<T> start = of_state_only(gate)
                                   ? hn::Set(d, a.bias_hn != nullptr ? a.bias_hn[unit] : T(0))
                                   : hn::LoadU(d, of_x + gate * H * kPanel<T> + column);
          const T* of_h = sums + (gate * kPanel<T> + unit - units.begin) * kPanel<T> + column;
          hn::Store(hn::Add(start, hn::LoadU(d, of_h)), d, own + gate * lanes);
        }
        apply(own, lanes, 1, lanes);
        finish(a, own, lanes, unit, panel, column);
      }
    }
  }

  // Computes unit `unit` for one vector of the batch; its gates' sums, after apply(), are `stride`
  // apart.
  template <typename T>
  static HWY_INLINE void finish(const RnnStepArgs<T>& a, const T* sums, int64_t stride,
                                int64_t unit, int64_t panel, int64_t column) {
    const Tag<T> d;
    const int64_t H = a.hidden, at = (panel * H + unit) * kPanel<T> + column;
    T* gates = a.gates + (panel * gate_vectors(kCell) * H + unit) * kPanel<T> + column;
    const Vec<T> before = hn::LoadU(d, a.h + at);
    hn::Mask<Tag<T>> active = hn::Eq(before, before);
    if (a.lengths != nullptr) {
      active = hn::Lt(hn::Set(d, a.time), hn::LoadU(d, a.lengths + panel * kPanel<T> + column));
    }
    [[maybe_unused]] const auto keep = [&](int64_t vector, Vec<T> value) HWY_ATTR {
      if (!a.keeps) return;
      if (a.lengths != nullptr) value = hn::IfThenElseZero(active, value);
      hn::StoreU(value, d, gates + vector * H * kPanel<T>);
    };
    const auto sum = [&](int64_t gate) HWY_ATTR { return hn::LoadU(d, sums + gate * stride); };
    Vec<T> h;
    if constexpr (kCell == CellKind::rnn_relu) {
      h = hn::Max(hn::Zero(d), sum(0));
    } else if constexpr (kCell == CellKind::rnn_tanh) {
      h = gate_tanh(d, sum(0));
    } else if constexpr (kCell == CellKind::gru) {
      const Vec<T> r = sum(0), z = sum(1), of_h = sum(2);
      const Vec<T> n = gate_tanh(d, hn::MulAdd(r, of_h, hn::LoadU(d, gates + 2 * H * kPanel<T>)));
      h = hn::MulAdd(z, hn::Sub(before, n), n);
      keep(0, r);
      keep(1, z);
      keep(2, n);
      keep(3, of_h);
    } else {
      const Vec<T> i = sum(0), f = sum(1), g = sum(2), o = sum(3);
      const Vec<T> c_before = hn::LoadU(d, a.c + at);
      Vec<T> c = hn::MulAdd(f, c_before, hn::Mul(i, g));
      h = hn::Mul(o, gate_tanh(d, c));
      keep(0, i);
      keep(1, f);
      keep(2, g);
      keep(3, o);
      keep(4, c);
      if (a.lengths != nullptr) c = hn::IfThenElse(active, c, c_before);
      hn::StoreU(c, d, a.c_next + at);
    }
    if (a.lengths != nullptr) h = hn::IfThenElse(active, h, before);
    hn::StoreU(h, d, a.h_next + at);
  }
};

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
