// One timestep of an LSTM or GRU for a few samples, compiled once per instruction set.
#if defined(RIDGELINE_CPU_SIMD_CELL_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CPU_SIMD_CELL_STEP_INL_H_
#undef RIDGELINE_CPU_SIMD_CELL_STEP_INL_H_
#else
#define RIDGELINE_CPU_SIMD_CELL_STEP_INL_H_
#endif

#include "hwy/highway.h"
#include "ridgeline/cpu/simd/gate-inl.h"
#include "ridgeline/cpu/simd/gemv-inl.h"
#include "ridgeline/cpu/simd/gemv.h"

// A panel has the gates of one vector of units, so that all values of a unit are in registers when
// its sums are done: four vectors of biases, then a row of `gates` vectors for each input and each
// unit of the state. A GRU's fourth bias is b_hn; its third gate's sums of input and state stay
// separate.
HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline int64_t cell_panel(CellKind cell, int64_t in, int64_t hidden) {
  return (4 + gates(cell) * (in + hidden)) * int64_t(hn::Lanes(Tag<float>()));
}

inline int64_t cell_panels(int64_t hidden) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<float>()));
  return (hidden + lanes - 1) / lanes;
}

inline Range panels_of(const CellArgs& a) {
  return {a.panels.begin, std::min(a.panels.end, cell_panels(a.hidden))};
}

template <int kGates, int kSamples>
HWY_INLINE void add_state(const CellArgs& a, const float* w, int64_t first,
                          Vec<float> (&acc)[kSamples][kGates]) {
  if (a.h != nullptr) add_rows(w, a.hidden, a.h + first * a.h_stride, a.h_stride, acc);
}

// Initialises the sums with the biases and the inputs' products. Returns the weights of the state.
template <int kGates, int kSamples>
HWY_INLINE const float* begin_sums(const CellArgs& a, const float* w, int64_t unit, int64_t first,
                                   Vec<float> (&acc)[kSamples][kGates]) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  RIDGELINE_UNROLL
  for (int s = 0; s < kSamples; ++s) {
    const float* from =
        a.ahead != nullptr ? a.ahead + (first + s) * a.ahead_stride + unit * kGates : w;
    RIDGELINE_UNROLL
    for (int g = 0; g < kGates; ++g) acc[s][g] = hn::LoadU(d, from + g * lanes);
  }
  w += 4 * lanes;
  if (a.ahead != nullptr) return w + a.in * kGates * lanes;
  return add_rows(w, a.in, a.x + first * a.x_stride, a.x_stride, acc);
}

template <int kGates>
void look_ahead_gates(const CellArgs& a, int64_t steps, float* ahead) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), size = cell_panel(a.cell, a.in, a.hidden);
  const int64_t row = cell_panels(a.hidden) * kGates * lanes;
  const Range panels = panels_of(a);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const float* w = a.packed + panel * size;
    for (int64_t sample = 0; sample < a.samples; ++sample) {
      // For the weights, timesteps are like samples.
      CellArgs inputs = a;
      inputs.ahead = nullptr;
      inputs.x = a.x + sample * a.x_stride;
      inputs.x_stride = a.in;
      float* to = ahead + sample * a.ahead_stride + panel * kGates * lanes;
      for_sample_groups(steps, [&](auto group, int64_t first) HWY_ATTR {
        Vec<float> acc[group.value][kGates];
        begin_sums(inputs, w, panel * lanes, first, acc);
        for (int64_t s = 0; s < group.value; ++s) {
          for (int64_t g = 0; g < kGates; ++g) {
            hn::StoreU(acc[s][g], d, to + (first + s) * row + g * lanes);
          }
        }
      });
    }
  }
}

inline int64_t packed_ahead(CellKind cell, int64_t hidden) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<float>()));
  return cell_panels(hidden) * lanes * gates(cell);
}

inline void look_ahead(const CellArgs& a, int64_t steps, float* ahead) {
  gates(a.cell) == 4 ? look_ahead_gates<4>(a, steps, ahead) : look_ahead_gates<3>(a, steps, ahead);
}

// Computes the states of a vector of units from the sums of sample `at`.
HWY_INLINE void finish_lstm(const CellArgs& a, int64_t unit, int64_t at, Vec<float> sum_i,
                            Vec<float> sum_f, Vec<float> sum_g, Vec<float> sum_o) {
  const Tag<float> d;
  const int64_t left = a.hidden - unit, place = at * a.hidden + unit;
  const auto i = gate_sigmoid(d, sum_i), f = gate_sigmoid(d, sum_f);
  const auto g = gate_tanh(d, sum_g), o = gate_sigmoid(d, sum_o);
  const auto before = a.c != nullptr ? load_part(a.c + place, left) : hn::Zero(d);
  const auto c = hn::MulAdd(f, before, hn::Mul(i, g));
  store_part(c, a.c_next + place, left);
  store_part(hn::Mul(o, gate_tanh(d, c)), a.y + at * a.y_stride + unit, left);
}

// The third gate's sums of input and state are apart.
HWY_INLINE void finish_gru(const CellArgs& a, int64_t unit, int64_t at, Vec<float> sum_r,
                           Vec<float> sum_z, Vec<float> of_input, Vec<float> of_state) {
  const Tag<float> d;
  const int64_t left = a.hidden - unit;
  const auto r = gate_sigmoid(d, sum_r), z = gate_sigmoid(d, sum_z);
  const auto n = gate_tanh(d, hn::MulAdd(r, of_state, of_input));
  const float* before = a.h != nullptr ? a.h + at * a.h_stride + unit : nullptr;
  const auto h = before != nullptr ? load_part(before, left) : hn::Zero(d);
  // (1 - z) n + z h
  const auto y = hn::MulAdd(z, h, hn::NegMulAdd(z, n, n));
  store_part(y, a.y + at * a.y_stride + unit, left);
}

template <int kSamples>
HWY_NOINLINE void lstm_units(const CellArgs& a, const float* w, int64_t unit, int64_t first) {
  Vec<float> acc[kSamples][4];
  w = begin_sums(a, w, unit, first, acc);
  add_state(a, w, first, acc);
  RIDGELINE_UNROLL
  for (int s = 0; s < kSamples; ++s) {
    finish_lstm(a, unit, first + s, acc[s][0], acc[s][1], acc[s][2], acc[s][3]);
  }
}

template <int kSamples>
HWY_NOINLINE void gru_units(const CellArgs& a, const float* w, int64_t unit, int64_t first) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  Vec<float> acc[kSamples][3], of_input[kSamples];
  const auto b_hn = hn::Load(d, w + 3 * lanes);
  w = begin_sums(a, w, unit, first, acc);
  RIDGELINE_UNROLL
  for (int s = 0; s < kSamples; ++s) {
    of_input[s] = acc[s][2];
    acc[s][2] = b_hn;
  }
  add_state(a, w, first, acc);
  RIDGELINE_UNROLL
  for (int s = 0; s < kSamples; ++s) {
    finish_gru(a, unit, first + s, acc[s][0], acc[s][1], of_input[s], acc[s][2]);
  }
}

// Samples of a tile of a timestep for many samples, whose sums stay in registers while the weights
// of a vector of units pass.
constexpr int kCellRows = kManyRegisters ? 6 : 2;

// Computes samples [first, first + kRows). The functions run on sums from memory, so that one copy
// of them serves all rows.
template <CellKind kCell, int kRows>
HWY_NOINLINE void cell_tile(const CellArgs& a, const float* w, int64_t unit, int64_t first) {
  const Tag<float> d;
  constexpr int kGates = int(gates(kCell));
  constexpr int64_t kLanes = int64_t(hn::MaxLanes(Tag<float>()));
  const int64_t lanes = int64_t(hn::Lanes(d)), row = kGates * lanes;
  HWY_ALIGN float sums[kRows][4][kLanes];
  Vec<float> acc[kRows][kGates];
  RIDGELINE_UNROLL
  for (int m = 0; m < kRows; ++m) {
    RIDGELINE_UNROLL
    for (int g = 0; g < kGates; ++g) acc[m][g] = hn::Load(d, w + g * lanes);
  }
  const auto b_hn = hn::Load(d, w + 3 * lanes);
  w += 4 * lanes;
  accumulate<kRows, kGates, Along::k, float>(a.in, a.x + first * a.x_stride, a.x_stride, w, row,
                                             acc);
  if constexpr (kCell == CellKind::gru) {
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      hn::Store(acc[m][2], d, sums[m][3]);
      acc[m][2] = b_hn;
    }
  }
  if (a.h != nullptr) {
    accumulate<kRows, kGates, Along::k, float>(a.hidden, a.h + first * a.h_stride, a.h_stride,
                                               w + a.in * row, row, acc);
  }
  RIDGELINE_UNROLL
  for (int m = 0; m < kRows; ++m) {
    RIDGELINE_UNROLL
    for (int g = 0; g < kGates; ++g) hn::Store(acc[m][g], d, sums[m][g]);
  }
  for (int m = 0; m < kRows; ++m) {
    const auto sum = [&](int g) HWY_ATTR { return hn::Load(d, sums[m][g]); };
    if constexpr (kCell == CellKind::gru) {
      finish_gru(a, unit, first + m, sum(0), sum(1), sum(3), sum(2));
    } else {
      finish_lstm(a, unit, first + m, sum(0), sum(1), sum(2), sum(3));
    }
  }
}

template <CellKind kCell>
void cell_step_many_of(const CellArgs& a) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<float>())), size = cell_panel(a.cell, a.in, a.hidden);
  const int64_t panels = cell_panels(a.hidden);
  const int64_t tiles = (a.samples + kCellRows - 1) / kCellRows;
  for (int64_t i = 0; i < panels; ++i) {
    const int64_t panel = a.backward ? panels - 1 - i : i;
    const float* w = a.packed + panel * size;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t first = a.samples * tile / tiles, end = a.samples * (tile + 1) / tiles;
      // A tile that is shorter still computes some samples of its neighbour again.
      if (end - first == kCellRows) {
        cell_tile<kCell, kCellRows>(a, w, panel * lanes, first);
      } else {
        cell_tile<kCell, kCellRows - 1>(a, w, panel * lanes,
                                        std::max<int64_t>(0, end - (kCellRows - 1)));
      }
    }
  }
}

inline void cell_step_many(const CellArgs& a) {
  a.cell == CellKind::lstm ? cell_step_many_of<CellKind::lstm>(a)
                           : cell_step_many_of<CellKind::gru>(a);
}

inline int64_t packed_cell(CellKind cell, int64_t in, int64_t hidden) {
  return cell_panels(hidden) * cell_panel(cell, in, hidden);
}

inline void pack_cell(CellKind cell, int64_t in, int64_t hidden, const float* w_ih,
                      const float* w_hh, const float* b_ih, const float* b_hh, float* packed) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<float>())), count = gates(cell);
  const bool gru = cell == CellKind::gru;
  for (int64_t unit = 0; unit < hidden; unit += lanes) {
    const auto put = [&](auto value) {  // of one unit
      for (int64_t i = unit; i < unit + lanes; ++i) *packed++ = i < hidden ? value(i) : 0.0f;
    };
    for (int64_t g = 0; g < 4; ++g) {
      const bool of_x = b_ih != nullptr && g < count, of_h = b_hh != nullptr && !(gru && g == 2);
      put([&](int64_t i) {
        const int64_t gate = gru && g == 3 ? 2 : g;
        return (of_x ? b_ih[gate * hidden + i] : 0.0f) + (of_h ? b_hh[gate * hidden + i] : 0.0f);
      });
    }
    const auto rows = [&](const float* w, int64_t depth) {
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t g = 0; g < count; ++g) {
          put([&](int64_t i) { return w[(g * hidden + i) * depth + k]; });
        }
      }
    };
    rows(w_ih, in);
    rows(w_hh, hidden);
  }
}

inline void cell_step(const CellArgs& a) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<float>())), size = cell_panel(a.cell, a.in, a.hidden);
  const Range panels = panels_of(a);
  for (int64_t i = panels.begin; i < panels.end; ++i) {
    const int64_t panel = a.backward ? panels.begin + panels.end - 1 - i : i;
    const float* w = a.packed + panel * size;
    for_sample_groups(a.samples, [&](auto group, int64_t first) HWY_ATTR {
      if (a.cell == CellKind::lstm) {
        lstm_units<group.value>(a, w, panel * lanes, first);
      } else {
        gru_units<group.value>(a, w, panel * lanes, first);
      }
    });
  }
}

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
