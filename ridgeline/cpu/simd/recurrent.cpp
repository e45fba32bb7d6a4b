#include "ridgeline/cpu/simd/recurrent.h"

#define HWY_DISABLED_TARGETS HWY_SSSE3
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/recurrent.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/gate-inl.h"
#include "ridgeline/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Hidden units of a tile, all gates of each: 8 or 9 rows of sums by two vectors of the batch in 32
// registers, 4 to 6 rows in 16.
constexpr int units_of(CellKind cell) {
  switch (cell) {
    case CellKind::lstm:
      return kManyRegisters ? 2 : 1;
    case CellKind::gru:
      return kManyRegisters ? 3 : 2;
    default:
      return kTileRows;
  }
}
constexpr int kGradUnits = kTileRows;

// The sums of a tile on their way from registers to the functions: one copy of those for any tile.
template <int kRows, int kVectors, typename T>
struct RnnSums {
  HWY_ALIGN T at[kRows][kVectors * hn::MaxLanes(Tag<T>())];

  HWY_INLINE void store(const Vec<T> (&acc)[kRows][kVectors]) {
    const Tag<T> d;
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) hn::Store(acc[m][j], d, at[m] + j * hn::Lanes(d));
    }
  }
};

template <CellKind kCell>
struct RnnStepTile {
  static constexpr int kGates = int(gates(kCell)), kUnits = units_of(kCell);
  static constexpr int kRows = kGates * kUnits;

  template <int kVectors, typename T>
  static HWY_NOINLINE void run(const RnnStepArgs<T>& a, int64_t unit, int64_t panel,
                               int64_t column) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d)), H = a.hidden;
    const int64_t units = std::min<int64_t>(kUnits, H - unit);
    T* gates = a.gates + panel * gate_vectors(kCell) * H * kPanel<T> + column;
    Vec<T> acc[kRows][kVectors];
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const int64_t u = m % kUnits, gate = m / kUnits;
      const bool hidden_only = kCell == CellKind::gru && gate == 2;
      const T bias = hidden_only && a.bias_hn != nullptr && u < units ? a.bias_hn[unit + u] : T(0);
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        acc[m][j] = hidden_only || u >= units
                        ? hn::Set(d, bias)
                        : hn::LoadU(d, gates + (gate * H + unit + u) * kPanel<T> + j * lanes);
      }
    }
    accumulate<kRows, kVectors, Along::m, T>(H, a.w + unit / kUnits * H * kRows, kRows,
                                             a.h + panel * H * kPanel<T> + column, kPanel<T>, acc);
    RnnSums<kRows, kVectors, T> sums;
    sums.store(acc);
    for (int64_t u = 0; u < units; ++u) {
      for (int64_t j = 0; j < kVectors; ++j) {
        finish(a, sums.at[u] + j * lanes, kUnits * kVectors * int64_t(hn::MaxLanes(d)), unit + u,
               panel, column + j * lanes);
      }
    }
  }

  // From sums[gate][kPanel units][kPanel] of h alone.
  template <typename T>
  static HWY_NOINLINE void finish_units(const RnnStepArgs<T>& a, const T* sums, Range units,
                                        int64_t panel) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d)), H = a.hidden;
    const int64_t stop = std::min(kPanel<T>, a.batch - panel * kPanel<T>);
    HWY_ALIGN T own[kGates * hn::MaxLanes(d)];
    for (int64_t unit = units.begin; unit < units.end; ++unit) {
      const T* of_x = a.gates + (panel * gate_vectors(kCell) * H + unit) * kPanel<T>;
      for (int64_t column = 0; column < stop; column += lanes) {
        RIDGELINE_UNROLL
        for (int64_t gate = 0; gate < kGates; ++gate) {
          const bool hidden_only = kCell == CellKind::gru && gate == 2;
          const Vec<T> start = hidden_only
                                   ? hn::Set(d, a.bias_hn != nullptr ? a.bias_hn[unit] : T(0))
                                   : hn::LoadU(d, of_x + gate * H * kPanel<T> + column);
          const T* of_h = sums + (gate * kPanel<T> + unit - units.begin) * kPanel<T> + column;
          hn::Store(hn::Add(start, hn::LoadU(d, of_h)), d, own + gate * lanes);
        }
        finish(a, own, lanes, unit, panel, column);
      }
    }
  }

  // Unit `unit` of one vector of the batch; its gates' sums are `stride` apart.
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
      const Vec<T> r = gate_sigmoid(d, sum(0)), z = gate_sigmoid(d, sum(1)), of_h = sum(2);
      const Vec<T> n = gate_tanh(d, hn::MulAdd(r, of_h, hn::LoadU(d, gates + 2 * H * kPanel<T>)));
      h = hn::MulAdd(z, hn::Sub(before, n), n);
      keep(0, r);
      keep(1, z);
      keep(2, n);
      keep(3, of_h);
    } else {
      const Vec<T> i = gate_sigmoid(d, sum(0)), f = gate_sigmoid(d, sum(1));
      const Vec<T> g = gate_tanh(d, sum(2)), o = gate_sigmoid(d, sum(3));
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

template <CellKind kCell>
struct RnnGradTile {
  template <int kVectors, typename T>
  static HWY_NOINLINE void run(const RnnGradStepArgs<T>& a, int64_t unit, int64_t panel,
                               int64_t column) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d)), H = a.hidden;
    const int64_t units = std::min<int64_t>(kGradUnits, H - unit);
    const int64_t at = (panel * H + unit) * kPanel<T> + column;
    Vec<T> acc[kGradUnits][kVectors];
    RIDGELINE_UNROLL
    for (int m = 0; m < kGradUnits; ++m) {
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        acc[m][j] =
            m < units ? hn::LoadU(d, a.direct + at + m * kPanel<T> + j * lanes) : hn::Zero(d);
      }
    }
    if (a.after != nullptr) {
      const int64_t depth = gates(kCell) * H;
      accumulate<kGradUnits, kVectors, Along::m, T>(
          depth, a.w + unit / kGradUnits * depth * kGradUnits, kGradUnits,
          a.after + panel * gradient_vectors(kCell) * H * kPanel<T> + column, kPanel<T>, acc);
    }
    RnnSums<kGradUnits, kVectors, T> sums;
    sums.store(acc);
    for (int64_t u = 0; u < units; ++u) {
      for (int64_t j = 0; j < kVectors; ++j) {
        const Vec<T> dh = hn::LoadU(d, sums.at[u] + j * lanes);
        if (a.dh0 != nullptr) {
          hn::StoreU(dh, d, a.dh0 + at + u * kPanel<T> + j * lanes);
        } else {
          finish(a, dh, unit + u, panel, column + j * lanes);
        }
      }
    }
  }

  // From sums[unit][kPanel]; null: zeros.
  template <typename T>
  static HWY_NOINLINE void finish_units(const RnnGradStepArgs<T>& a, const T* sums, Range units,
                                        int64_t panel) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d));
    const int64_t stop = std::min(kPanel<T>, a.batch - panel * kPanel<T>);
    for (int64_t unit = units.begin; unit < units.end; ++unit) {
      const int64_t at = (panel * a.hidden + unit) * kPanel<T>;
      for (int64_t column = 0; column < stop; column += lanes) {
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
      put(0, hn::Mul(hn::Mul(dn, of_h), sigmoid_slope(d, r)));
      const Vec<T> h = hn::IfThenElse(was, hn::LoadU(d, a.h + at), hn::LoadU(d, a.h0 + at));
      put(1, hn::Mul(hn::Mul(dh, hn::Sub(h, n)), sigmoid_slope(d, z)));
      put(2, hn::Mul(dn, r));
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

// The tiles of a range of units over all of the batch.
template <class Tile, typename T, class Args>
HWY_INLINE void run_units(const Args& a, int64_t tile, Range units) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  for (int64_t unit = units.begin; unit < units.end; unit += tile) {
    for (int64_t panel = 0; panel < panels_of<T>(a.batch); ++panel) {
      const int64_t stop = std::min(kPanel<T>, a.batch - panel * kPanel<T>);
      int64_t column = 0;
      for (; column + lanes < stop; column += 2 * lanes) {
        Tile::template run<2>(a, unit, panel, column);
      }
      if (column < stop) Tile::template run<1>(a, unit, panel, column);
    }
  }
}

// Calls f with the cell as a constant.
template <class F>
HWY_INLINE void with_cell(CellKind cell, F&& f) {
  switch (cell) {
    case CellKind::rnn_relu:
      return f(std::integral_constant<CellKind, CellKind::rnn_relu>());
    case CellKind::rnn_tanh:
      return f(std::integral_constant<CellKind, CellKind::rnn_tanh>());
    case CellKind::gru:
      return f(std::integral_constant<CellKind, CellKind::gru>());
    case CellKind::lstm:
      return f(std::integral_constant<CellKind, CellKind::lstm>());
  }
}

template <typename T>
void step(const RnnStepArgs<T>& a, Range units) {
  with_cell(a.cell, [&](auto cell) HWY_ATTR {
    run_units<RnnStepTile<cell.value>, T>(a, units_of(a.cell), units);
  });
}

template <typename T>
void grad_step(const RnnGradStepArgs<T>& a, Range units) {
  with_cell(a.cell, [&](auto cell)
                        HWY_ATTR { run_units<RnnGradTile<cell.value>, T>(a, kGradUnits, units); });
}

template <typename T>
void finish(const RnnStepArgs<T>& a, const T* sums, Range units, int64_t panel) {
  with_cell(a.cell, [&](auto cell)
                        HWY_ATTR { RnnStepTile<cell.value>::finish_units(a, sums, units, panel); });
}

template <typename T>
void grad_finish(const RnnGradStepArgs<T>& a, const T* sums, Range units, int64_t panel) {
  with_cell(a.cell, [&](auto cell)
                        HWY_ATTR { RnnGradTile<cell.value>::finish_units(a, sums, units, panel); });
}

template <typename T>
void pack(CellKind cell, int64_t H, const T* w, T* packed, Range tiles) {
  const int64_t units = units_of(cell), rows = units * gates(cell);
  for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    T* to = packed + tile * H * rows;
    for (int64_t m = 0; m < rows; ++m) {
      const int64_t unit = tile * units + m % units;
      const T* from = w + (m / units * H + unit) * H;
      for (int64_t k = 0; k < H; ++k) to[k * rows + m] = unit < H ? from[k] : T(0);
    }
  }
}

template <typename T>
void pack_transposed(CellKind cell, int64_t H, const T* w, T* packed, Range tiles) {
  const int64_t depth = gates(cell) * H;
  for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    T* to = packed + tile * depth * kGradUnits;
    const int64_t unit = tile * kGradUnits, units = std::min<int64_t>(kGradUnits, H - unit);
    for (int64_t row = 0; row < depth; ++row) {
      for (int64_t m = 0; m < kGradUnits; ++m) {
        to[row * kGradUnits + m] = m < units ? w[row * H + unit + m] : T(0);
      }
    }
  }
}

int64_t rnn_units(CellKind cell) { return units_of(cell); }
int64_t rnn_grad_units() { return kGradUnits; }

template <typename T>
constexpr RnnKernels<T> kRnnTable{rnn_units, rnn_grad_units, pack<T>,   pack_transposed<T>,
                                  step<T>,   grad_step<T>,   finish<T>, grad_finish<T>};
const RnnKernels<float>* float_rnn_kernels() { return &kRnnTable<float>; }
const RnnKernels<double>* double_rnn_kernels() { return &kRnnTable<double>; }

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

HWY_EXPORT(float_rnn_kernels);
HWY_EXPORT(double_rnn_kernels);

template <>
const RnnKernels<float>& rnn_kernels<float>() {
  return *HWY_DYNAMIC_DISPATCH(float_rnn_kernels)();
}
template <>
const RnnKernels<double>& rnn_kernels<double>() {
  return *HWY_DYNAMIC_DISPATCH(double_rnn_kernels)();
}

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
