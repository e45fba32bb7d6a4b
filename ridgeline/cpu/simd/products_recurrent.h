#pragma once

#include <algorithm>

#include "ridgeline/cpu/simd/packed_product.h"
#include "ridgeline/cpu/simd/panels_recurrent.h"

// The large products after the way back through time, from the gate gradients where the loop left
// them: panels of the batch, step by step. Rows of the products are (t, b); items past the batch
// are zeros.
namespace ridgeline::cpu::simd {

// A matrix [n, width] as blocks of columns, each in one stretch: rows of a power of two bytes would
// fall into the same few sets of a cache.
template <typename T>
struct ColumnBlocks {
  static constexpr int64_t kWidth = 192 / int64_t{sizeof(T)};  // three vectors of AVX-512
  int64_t n, width;
  T* at = nullptr;

  static int64_t padded(int64_t width) { return (width + kGroup<T> - 1) / kGroup<T> * kGroup<T>; }
  size_t size() const { return size_t(n * padded(width)); }
  int64_t ld(int64_t column) const { return padded(std::min(kWidth, width - column)); }
  T* row(int64_t column, int64_t r) const { return at + column * n + r * ld(column); }

  // Row r; zeros when `from` is null.
  void take(int64_t r, const T* from) const {
    for (int64_t column = 0; column < width; column += kWidth) {
      const int64_t ld_here = ld(column), count = std::min(kWidth, width - column);
      T* to = row(column, r);
      if (from != nullptr) std::copy_n(from + column, count, to);
      std::fill(to + (from != nullptr ? count : 0), to + ld_here, T(0));
    }
  }
};

template <typename T>
struct GradOperands {
  const T *x = nullptr, *y = nullptr, *h0 = nullptr;
  const int32_t* lengths = nullptr;
  const T* w_ih[2] = {};
  T* dx = nullptr;  // may be null
  T *dw_ih[2] = {}, *dw_hh[2] = {}, *db_ih[2] = {}, *db_hh[2] = {};

  // dx in panels by step to where it belongs, a thread's share.
  void put_dx(const RnnShape& s, const T* panels, ThreadPool& pool, int thread) const {
    const Range times = split(s.steps, thread, pool.size());
    for (int64_t t = times.begin; t < times.end; ++t) {
      batch_kernels<T>().from_panels(panels + t * Sizes<T>{s}.step(s.in), s.in, dx + t * s.in,
                                     s.steps * s.in, {0, s.batch}, {0, s.in});
    }
  }
};

// gru: vectors lie between the gates of w_hh and their gradients.
constexpr int64_t state_shift(CellKind cell, int64_t gate) {
  return cell == CellKind::gru ? (gate + 1) % 3 - gate : 0;
}

template <typename T>
struct GradProducts {
  RnnShape s{};
  // Scratch.
  ColumnBlocks<T> inputs{}, states{};
  T *packed = nullptr, *dx_panels = nullptr;

  int64_t panels() const { return panels_of<T>(s.batch); }
  int64_t rows() const { return s.steps * panels() * kPanel<T>; }
  int64_t wide() const { return gradient_vectors(s.cell) * s.hidden; }
  // Before the vectors that go through w_ih.
  int64_t first() const { return kernel_vector(s.cell, 0) * s.hidden; }

  void allot(const RnnShape& shape, Scratch& scratch) {
    s = shape;
    inputs = {rows(), s.in};
    states = {rows(), s.hidden};
    inputs.at = scratch.take<T>(inputs.size());
    states.at = scratch.take<T>(states.size());
    packed = scratch.take<T>(packed_elements<T>(s.in, s.gate_rows()));
    dx_panels = scratch.take<T>(size_t(rows() * s.in));
  }

  // What does not need the gate gradients: one of kPackParts parts of the weights, and a step. A
  // barrier before run().
  void pack(const GradOperands<T>& o, int part, int64_t d) const {
    if (o.dx == nullptr) return;
    packed_kernels<T>().pack(o.w_ih[d], 1, s.in, s.in, s.gate_rows(), packed,
                             split(packed_tiles<T>(s.in), part, kPackParts));
  }
  void take_step(const GradOperands<T>& o, int64_t d, int64_t t) const {
    for (int64_t b = 0; b < panels() * kPanel<T>; ++b) {
      const int64_t r = t * panels() * kPanel<T> + b;
      if (d == 0) inputs.take(r, b < s.batch ? input_at(s, o.x, o.lengths, b, t) : nullptr);
      states.take(r, b < s.batch ? state_before(s, o.y, o.h0, o.lengths, b, d, t) : nullptr);
    }
  }

  void run(const GradOperands<T>& o, ThreadPool& pool, const Pieces& pieces, int thread,
           int64_t& round, int64_t d, const T* gradients) const {
    if (o.dx != nullptr) {
      PackedProductArgs<T> args{packed,           gradients + first() * kPanel<T>,
                                dx_panels,        wide() * kPanel<T>,
                                s.in * kPanel<T>, s.in,
                                s.gate_rows()};
      args.add = d > 0;
      multiply_in_pieces(pieces, thread, round++, args, s.steps * panels());
      pool.barrier();
    }
    weights(o, pool, pieces, thread, round++, d, gradients);
    if (o.dx != nullptr && d + 1 == s.directions()) o.put_dx(s, dx_panels, pool, thread);
  }

 private:
  // dw and db of both operands, some rows at a time.
  void weights(const GradOperands<T>& o, ThreadPool& pool, const Pieces& pieces, int thread,
               int64_t round, int64_t d, const T* gradients) const {
    const int64_t H = s.hidden, G = gates(s.cell);
    const int64_t high = std::clamp<int64_t>(H * G / (8 * pool.size()) / 8 * 8, 16, 64);
    const int64_t of_gate = (H + high - 1) / high;
    pieces.run(thread, round, 2 * G * of_gate, [&](int64_t piece) {
      const int64_t which = piece / of_gate, begin = piece % of_gate * high;
      const int64_t gate = which % G;
      const Range mine{gate * H + begin, gate * H + std::min(begin + high, H)};
      // Row r of dw is feature r + shift of the gradients.
      if (which < G) {
        add_up(gradients, first(), inputs, o.dw_ih[d], o.db_ih[d], mine);
      } else {
        add_up(gradients, state_shift(s.cell, gate) * H, states, o.dw_hh[d], o.db_hh[d], mine);
      }
    });
  }

  void add_up(const T* gradients, int64_t shift, const ColumnBlocks<T>& right, T* dw, T* db,
              Range mine) const {
    constexpr int64_t kRows = 1024;  // their gradients stay in the second-level cache
    WeightGradArgs<T> args{};
    args.in = right.width;
    args.out = wide();
    args.dw = dw;
    args.db = db;
    for (int64_t begin = 0; begin < rows(); begin += kRows) {
      args.n = std::min(kRows, rows() - begin);
      args.first = begin == 0;
      args.last = begin + kRows >= rows();
      args.dz = gradients + begin * wide() + shift * kPanel<T>;
      for (int64_t i = 0; i < right.width; i += ColumnBlocks<T>::kWidth) {
        args.ldx = right.ld(i);
        args.x = right.row(i, begin) - i;
        kernels<T>().weight_grad(args, mine,
                                 {i, std::min(i + ColumnBlocks<T>::kWidth, right.width)});
      }
    }
  }
};

}  // namespace ridgeline::cpu::simd
