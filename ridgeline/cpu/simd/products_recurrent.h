#pragma once

#include <algorithm>

#include "ridgeline/cpu/simd/packed_product.h"
#include "ridgeline/cpu/simd/panels_recurrent.h"

// The large products after backpropagation through time. They read the gate gradients where the
// loop over timesteps left them: panels of the batch, timestep by timestep. Rows of the products
// are (t, b); samples past the batch are zeros.
namespace ridgeline::cpu::simd {

// A matrix [n, width] as contiguous blocks of columns: rows of a power of two bytes would map to
// the same few sets of a cache.
template <typename T>
struct ColumnBlocks {
  static constexpr int64_t kWidth = 192 / int64_t{sizeof(T)};  // three vectors of AVX-512
  int64_t n, width;
  T* at = nullptr;

  static int64_t padded(int64_t width) { return (width + kGroup<T> - 1) / kGroup<T> * kGroup<T>; }
  size_t size() const { return size_t(n * padded(width)); }
  int64_t ld(int64_t column) const { return padded(std::min(kWidth, width - column)); }
  T* row(int64_t column, int64_t r) const { return at + column * n + r * ld(column); }

  // Copies row r; zeros if `from` is null.
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

  // Stores dx from panels by timestep, from the first of `times` on.
  void put_dx(const RnnShape& s, const T* panels, Range times, Range samples) const {
    for (int64_t t = times.begin; t < times.end; ++t, panels += Sizes<T>{s}.step(s.in)) {
      batch_functions<T>().from_panels(panels, s.in, dx + t * s.in, s.steps * s.in, samples,
                                       {0, s.in});
    }
  }
  // Stores a thread's share.
  void put_dx(const RnnShape& s, const T* panels, ThreadPool& pool, int thread) const {
    const Range times = split(s.steps, thread, pool.size());
    put_dx(s, panels + times.begin * Sizes<T>{s}.step(s.in), times, {0, s.batch});
  }
};

// gru: the offset in vectors between the gates of w_hh and their gradients.
constexpr int64_t state_shift(CellKind cell, int64_t gate) {
  return cell == CellKind::gru ? (gate + 1) % 3 - gate : 0;
}

template <typename T>
struct GradProducts {
  RnnShape s{};
  // Scratch.
  ColumnBlocks<T> inputs{}, states{};
  T *packed = nullptr, *dx_panels = nullptr;
  int64_t dx_steps = 0;  // capacity of dx_panels

  int64_t panels() const { return panels_of<T>(s.batch); }
  int64_t rows() const { return s.steps * panels() * kPanel<T>; }
  int64_t wide() const { return gradient_vectors(s.cell) * s.hidden; }
  // The elements before the vectors that are multiplied by w_ih.
  int64_t first() const { return kernel_vector(s.cell, 0) * s.hidden; }

  // `together` is the number of timesteps whose dx is computed at once.
  void allot(const RnnShape& shape, int64_t together, Scratch& scratch) {
    s = shape;
    // With two directions, the second adds to the result of the first.
    dx_steps = s.directions() > 1 ? s.steps : std::min(together, s.steps);
    inputs = {rows(), s.in};
    states = {rows(), s.hidden};
    inputs.at = scratch.take<T>(inputs.size());
    states.at = scratch.take<T>(states.size());
    packed = scratch.take<T>(packed_elements<T>(s.in, s.gate_rows()));
    dx_panels = scratch.take<T>(size_t(dx_steps * Sizes<T>{s}.step(s.in)));
  }

  // Packs what does not need the gate gradients: one of kPackParts parts of the weights, and a
  // timestep. A barrier must follow before run().
  void pack(const GradOperands<T>& o, int part, int64_t d) const {
    if (o.dx == nullptr) return;
    packed_functions<T>().pack(o.w_ih[d], 1, s.in, s.in, s.gate_rows(), packed,
                               split(packed_tiles<T>(s.in), part, kPackParts));
  }
  void take_step(const GradOperands<T>& o, int64_t d, int64_t t) const {
    take_steps(o, d, {t, t + 1}, {0, s.batch});
  }
  // Takes the timesteps of some samples. The columns past the batch belong to the last samples.
  void take_steps(const GradOperands<T>& o, int64_t d, Range times, Range samples) const {
    const int64_t end = samples.end == s.batch ? panels() * kPanel<T> : samples.end;
    for (int64_t b = samples.begin; b < end; ++b) {
      for (int64_t t = times.begin; t < times.end; ++t) {
        const int64_t r = t * panels() * kPanel<T> + b;
        if (d == 0) inputs.take(r, b < s.batch ? input_at(s, o.x, o.lengths, b, t) : nullptr);
        states.take(r, b < s.batch ? state_before(s, o.y, o.h0, o.lengths, b, d, t) : nullptr);
      }
    }
  }

  void run(const GradOperands<T>& o, ThreadPool& pool, const WorkStealing& work, int thread,
           int64_t& round, int64_t d, const T* gradients) const {
    if (o.dx != nullptr) {
      multiply_stealing(work, thread, round++, dx_product(d, gradients, 0), s.steps * panels());
      pool.barrier();
    }
    weights(o, pool, work, thread, round++, d, gradients);
    if (o.dx != nullptr && d + 1 == s.directions()) o.put_dx(s, dx_panels, pool, thread);
  }

  // Computes dx of some samples' timesteps, by the thread that owns them.
  void run_samples(const GradOperands<T>& o, int64_t d, const T* gradients, Range samples,
                   Range times) const {
    if (o.dx == nullptr) return;
    multiply_samples(dx_product(d, gradients, times.begin), Sizes<T>{s}, samples,
                     times.end - times.begin);
    if (d + 1 == s.directions()) o.put_dx(s, dx_of(times.begin), times, samples);
  }

  // Computes dw and db of both operands, some rows at a time; a barrier must precede it.
  void weights(const GradOperands<T>& o, ThreadPool& pool, const WorkStealing& work, int thread,
               int64_t round, int64_t d, const T* gradients) const {
    const int64_t H = s.hidden, all = s.gate_rows();
    const int64_t alike = s.cell == CellKind::gru ? 2 * H : all;  // rows of either operand
    T *db_ih = o.db_ih[d], *db_hh = o.db_hh[d];
    const WeightRows parts[] = {
        {&inputs, {0, all}, first(), o.dw_ih[d], db_ih},
        {&states, {0, alike}, first(), o.dw_hh[d], db_ih == nullptr ? db_hh : nullptr},
        {&states, {alike, all}, state_shift(s.cell, 2) * H, o.dw_hh[d], db_hh}};
    int64_t counts[3], total = 0;
    for (int i = 0; i < 3; ++i) total += counts[i] = parts[i].tasks(pool.size());
    work.run(thread, round, total, [&](int64_t task) {
      int i = 0;
      for (; task >= counts[i]; ++i) task -= counts[i];
      const Range mine = parts[i].at(task, counts[i]);
      add_up(gradients, parts[i], mine);
      if (i == 0 && db_ih != nullptr && db_hh != nullptr) {
        for (int64_t r = mine.begin; r < std::min(mine.end, alike); ++r) db_hh[r] = db_ih[r];
      }
    });
  }

 private:
  T* dx_of(int64_t t) const {
    return dx_panels + (dx_steps == s.steps ? t : 0) * Sizes<T>{s}.step(s.in);
  }

  // Starts at timestep t.
  PackedProductArgs<T> dx_product(int64_t d, const T* gradients, int64_t t) const {
    const Sizes<T> sizes{s};
    PackedProductArgs<T> args{
        packed,           gradients + t * sizes.step(wide()) + first() * kPanel<T>,
        dx_of(t),         wide() * kPanel<T>,
        s.in * kPanel<T>, s.in,
        s.gate_rows()};
    args.add = d > 0;
    return args;
  }

  // Rows of one dw: the product of the gradients from feature row + shift on and the right operand.
  struct WeightRows {
    const ColumnBlocks<T>* right;
    Range rows;
    int64_t shift;
    T *dw, *db;  // db may be null

    // Tasks are whole tiles of six or eight rows: few, because each reads the whole right operand,
    // and enough for all threads.
    static constexpr int64_t kTiles = 24, kMost = 3 * kTiles;
    int64_t tasks(int threads) const {
      const int64_t count = rows.end - rows.begin;
      return std::min((count + kTiles - 1) / kTiles,
                      std::max<int64_t>((count + kMost - 1) / kMost, 4 * threads));
    }
    Range at(int64_t task, int64_t of) const {
      const Range part = split(rows.end - rows.begin, int(task), int(of), kTiles);
      return {rows.begin + part.begin, rows.begin + part.end};
    }
  };

  // Takes some rows of the batch by all columns that stay in the second-level cache beside their
  // sums, so that the gradients are read once for all of them.
  void add_up(const T* gradients, const WeightRows& part, Range mine) const {
    constexpr int64_t kColumns = 3 * ColumnBlocks<T>::kWidth, kRows = 2 * kGradBlock;
    const ColumnBlocks<T>& right = *part.right;
    WeightGradArgs<T> args{};
    args.in = right.width;
    args.out = wide();
    args.dw = part.dw;
    args.db = part.db;
    for (int64_t first = 0; first < right.width; first += kColumns) {
      const int64_t end = std::min(first + kColumns, right.width);
      for (int64_t begin = 0; begin < rows(); begin += kRows) {
        args.n = std::min(kRows, rows() - begin);
        args.first = begin == 0;
        args.last = begin + kRows >= rows();
        args.dz = gradients + begin * wide() + part.shift * kPanel<T>;
        for (int64_t i = first; i < end; i += ColumnBlocks<T>::kWidth) {
          args.ldx = right.ld(i);
          args.x = right.row(i, begin) - i;
          gemm_functions<T>().weight_grad(args, mine,
                                          {i, std::min(i + ColumnBlocks<T>::kWidth, end)});
        }
      }
    }
  }
};

}  // namespace ridgeline::cpu::simd
