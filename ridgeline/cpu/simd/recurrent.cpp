#include "ridgeline/cpu/simd/recurrent.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/recurrent.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/depth-inl.h"
#include "ridgeline/cpu/simd/recurrent_grad-inl.h"
#include "ridgeline/cpu/simd/recurrent_step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace recurrent {
namespace hn = hwy::HWY_NAMESPACE;

// Computes the tiles of a range of units over the samples.
template <class Tile, typename T, class Args>
HWY_INLINE void run_units(const Args& a, int64_t depth, int64_t tile_units, Range units) {
  const Range tiles{units.begin / tile_units, packed_count(units.end, tile_units)};
  for_depth_blocks(depth, [&](Range part) HWY_ATTR {
    for_tiles<T>(tiles, panels_with<T>(a.samples), [&](int64_t tile, int64_t panel) HWY_ATTR {
      for_columns<T>(columns_of<T>(a.samples, panel), [&](auto vectors, int64_t column) HWY_ATTR {
        Tile::template run<vectors>(a, tile, panel, column, part);
      });
    });
  });
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
    run_units<RnnStepTile<cell.value>, T>(a, a.hidden, units_of(a.cell), units);
  });
}

template <typename T>
void grad_step(const RnnGradStepArgs<T>& a, Range units) {
  with_cell(a.cell, [&](auto cell) HWY_ATTR {
    using Tile = RnnGradTile<cell.value>;
    run_units<Tile, T>(a, Tile::depth_of(a), kGradUnits, units);
  });
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
void pack(CellKind kind, int64_t H, const T* w, T* packed, Range tiles) {
  with_cell(kind, [&](auto cell) {
    constexpr int kUnits = units_of(cell), kRows = kUnits * int(gates(cell));
    for_depth_blocks(H, [&](Range depth) {
      for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        const T* rows[kRows];
        for (int m = 0; m < kRows; ++m) {
          const int64_t unit = tile * kUnits + m % kUnits;
          rows[m] = unit < H ? w + (m / kUnits * H + unit) * H : nullptr;
        }
        pack_rows<kRows>(rows, 1, depth,
                         packed + packed_at(packed_count(H, kUnits), tile, kRows, depth));
      }
    });
  });
}

template <typename T>
void pack_transposed(CellKind cell, int64_t H, const T* w, T* packed, Range tiles) {
  for_depth_blocks(gates(cell) * H, [&](Range depth) {
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      T* to = packed + packed_at(packed_count(H, kGradUnits), tile, kGradUnits, depth);
      const int64_t unit = tile * kGradUnits, units = std::min<int64_t>(kGradUnits, H - unit);
      for (int64_t k = depth.begin; k < depth.end;) {
        const int64_t gate = k / H, end = std::min(depth.end, (gate + 1) * H);
        const T* from = w + (recurrent_gate(cell, gate) * H + k - gate * H) * H + unit;
        for (; k < end; ++k, from += H, to += kGradUnits) pack_row<kGradUnits>(from, units, to);
      }
    }
  });
}

int64_t rnn_units(CellKind cell) { return units_of(cell); }
int64_t rnn_grad_units() { return kGradUnits; }

template <typename T>
constexpr RnnFunctions<T> kRnnTable{rnn_units, rnn_grad_units, pack<T>,   pack_transposed<T>,
                                    step<T>,   grad_step<T>,   finish<T>, grad_finish<T>};

}  // namespace recurrent

const RnnFunctions<float>* float_rnn_functions() { return &recurrent::kRnnTable<float>; }
const RnnFunctions<double>* double_rnn_functions() { return &recurrent::kRnnTable<double>; }

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

HWY_EXPORT(float_rnn_functions);
HWY_EXPORT(double_rnn_functions);

template <>
const RnnFunctions<float>& rnn_functions<float>() {
  return *HWY_DYNAMIC_DISPATCH(float_rnn_functions)();
}
template <>
const RnnFunctions<double>& rnn_functions<double>() {
  return *HWY_DYNAMIC_DISPATCH(double_rnn_functions)();
}

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
