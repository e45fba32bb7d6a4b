// A tile of one timestep of backpropagation through time and the cells' derivatives, compiled once
// per instruction set.
#if defined(RIDGELINE_CPU_SIMD_RECURRENT_GRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CPU_SIMD_RECURRENT_GRAD_INL_H_
#undef RIDGELINE_CPU_SIMD_RECURRENT_GRAD_INL_H_
#else
#define RIDGELINE_CPU_SIMD_RECURRENT_GRAD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "ridgeline/cpu/simd/depth-inl.h"
#include "ridgeline/cpu/simd/gate-inl.h"
#include "ridgeline/cpu/simd/recurrent.h"
#include "ridgeline/cpu/simd/recurrent_step-inl.h"
#include "ridgeline/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kGradUnits = kTileRows;

template <CellKind kCell>
struct RnnGradTile {
  // Handles a block of the depth; between blocks the sums are kept in `direct`, with which they
  // begin.
  template <int kVectors, typename T>
  static HWY_NOINLINE void run(const RnnGradStepArgs<T>& a, int64_t tile, int64_t panel,
                               int64_t column, Range depth) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d)), H = a.hidden, unit = tile * kGradUnits;
    const int64_t units = std::min<int64_t>(kGradUnits, H - unit);
    T* direct = a.direct + (panel * H + unit) * kPanel<T> + column;
    const T* after = a.after;
    if (after != nullptr) {
      after += (panel * gradient_vectors(kCell) * H + depth.begin) * kPanel<T> + column;
    }
    Vec<T> acc[kGradUnits][kVectors];
    RIDGELINE_UNROLL
    for (int m = 0; m < kGradUnits; ++m) {
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        acc[m][j] = m < units ? hn::LoadU(d, direct + m * kPanel<T> + j * lanes) : hn::Zero(d);
      }
    }
    accumulate<kGradUnits, kVectors, Along::m, T>(
        depth.end - depth.begin,
        a.w + packed_at(packed_count(H, kGradUnits), tile, kGradUnits, depth), kGradUnits, after,
        kPanel<T>, acc);
    if (depth.end < depth_of(a)) {
      RIDGELINE_UNROLL
      for (int m = 0; m < kGradUnits; ++m) {
        if (m >= units) break;
        RIDGELINE_UNROLL
        for (int j = 0; j < kVectors; ++j) {
          hn::StoreU(acc[m][j], d, direct + m * kPanel<T> + j * lanes);
        }
      }
      return;
    }
    RnnSums<kGradUnits, kVectors, T> sums;
    sums.store(0, acc);
    for (int64_t u = 0; u < units; ++u) {
      for (int64_t j = 0; j < kVectors; ++j) {
        const Vec<T> dh = hn::LoadU(d, sums.at[u] + j * lanes);
        if (a.dh0 != nullptr) {
          hn::StoreU(dh, d, a.dh0 + ((panel * H + unit + u) * kPanel<T> + column + j * lanes));
        } else {
          finish(a, dh, unit + u, panel, column + j * lanes);
        }
      }
    }
  }

  // The last timestep has no later one.
  template <typename T>
  static int64_t depth_of(const RnnGradStepArgs<T>& a) {
    return a.after != nullptr ? gates(kCell) * a.hidden : 0;
  }

  // Reads sums[unit][kPanel]; null: zeros.
  template <typename T>
  static HWY_NOINLINE void finish_units(const RnnGradStepArgs<T>& a, const T* sums, Range units,
                                        int64_t panel) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d));
    const Range columns = columns_of<T>(a.samples, panel);
    for (int64_t unit = units.begin; unit < units.end; ++unit) {
      const int64_t at = (panel * a.hidden + unit) * kPanel<T>;
      for (int64_t column = columns.begin; column < columns.end; column += lanes) {
        Vec<T> dh = hn::LoadU(d, a.direct + at + column);
        if (sums != nullptr) {
          dh = hn::Add(dh, hn::LoadU(d, sums + (unit - units.begin) * kPanel<T> + column));
        }
        if (a.dh0 != nullptr) {
          hn::StoreU(dh, d, a.dh0 + at + column);
        } else {
          finish(a, dh, unit, panel, column);
        }
      }
    }
  }

  // s * (1 - s), and 1 - t * t
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V sigmoid_slope(D, V s) {
    return hn::NegMulAdd(s, s, s);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V tanh_slope(D d, V t) {
    return hn::NegMulAdd(t, t, hn::Set(d, hn::TFromD<D>(1)));
  }

  template <typename T>
  static HWY_INLINE void finish(const RnnGradStepArgs<T>& a, Vec<T> from_after, int64_t unit,
                                int64_t panel, int64_t column) {
    const Tag<T> d;
    const int64_t H = a.hidden, at = (panel * H + unit) * kPanel<T> + column;
    [[maybe_unused]] const T* gates = nullptr;
    if constexpr (saved_vectors(kCell) > 0) {
      gates = a.gates + (panel * gate_vectors(kCell) * H + unit) * kPanel<T> + column;
    }
    T* out = a.gradients + (panel * gradient_vectors(kCell) * H + unit) * kPanel<T> + column;
    const Vec<T> lengths = hn::LoadU(d, a.lengths + panel * kPanel<T> + column);
    const auto active = hn::Lt(hn::Set(d, a.time), lengths);
    [[maybe_unused]] const auto was = hn::Lt(hn::Set(d, a.time_before), lengths);
    [[maybe_unused]] const auto saved = [&](int64_t vector) HWY_ATTR {
      return hn::LoadU(d, gates + vector * H * kPanel<T>);
    };
    const auto put = [&](int64_t vector, Vec<T> value) HWY_ATTR {
      hn::StoreU(hn::IfThenElseZero(active, value), d, out + vector * H * kPanel<T>);
    };
    const Vec<T> dh = hn::Add(from_after, hn::LoadU(d, a.dy + at));
    Vec<T> direct = hn::Zero(d);
    if constexpr (kCell == CellKind::rnn_relu) {
      put(0, hn::IfThenElseZero(hn::Gt(hn::LoadU(d, a.y + at), hn::Zero(d)), dh));
    } else if constexpr (kCell == CellKind::rnn_tanh) {
      put(0, hn::Mul(dh, tanh_slope(d, hn::LoadU(d, a.y + at))));
    } else if constexpr (kCell == CellKind::gru) {
      const Vec<T> r = saved(0), z = saved(1), n = saved(2), of_h = saved(3);
      const Vec<T> dn = hn::Mul(hn::NegMulAdd(z, dh, dh), tanh_slope(d, n));
      put(1, hn::Mul(hn::Mul(dn, of_h), sigmoid_slope(d, r)));
      const Vec<T> h = hn::IfThenElse(was, hn::LoadU(d, a.h + at), hn::LoadU(d, a.h0 + at));
      put(2, hn::Mul(hn::Mul(dh, hn::Sub(h, n)), sigmoid_slope(d, z)));
      put(0, hn::Mul(dn, r));
      put(3, dn);
      direct = hn::Mul(dh, z);
    } else {
      const Vec<T> i = saved(0), f = saved(1), g = saved(2), o = saved(3);
      const Vec<T> t = gate_tanh(d, saved(4));
      const Vec<T> c_before =
          hn::IfThenElse(was, hn::LoadU(d, a.c + panel * a.c_stride + unit * kPanel<T> + column),
                         hn::LoadU(d, a.c0 + at));
      const Vec<T> dc_after = hn::LoadU(d, a.dc + at);
      const Vec<T> dc = hn::MulAdd(hn::Mul(dh, o), tanh_slope(d, t), dc_after);
      put(0, hn::Mul(hn::Mul(dc, g), sigmoid_slope(d, i)));
      put(1, hn::Mul(hn::Mul(dc, c_before), sigmoid_slope(d, f)));
      put(2, hn::Mul(hn::Mul(dc, i), tanh_slope(d, g)));
      put(3, hn::Mul(hn::Mul(dh, t), sigmoid_slope(d, o)));
      hn::StoreU(hn::IfThenElse(active, hn::Mul(dc, f), dc_after), d, a.dc + at);
    }
    hn::StoreU(hn::IfThenElse(active, direct, from_after), d, a.direct + at);
  }
};

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
