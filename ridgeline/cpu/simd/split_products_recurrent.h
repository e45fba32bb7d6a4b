#pragma once

#include "ridgeline/cpu/simd/products_recurrent.h"
#include "ridgeline/cpu/simd/split_recurrent.h"

// The products of products_recurrent.h by blocks of split_product.h.
namespace ridgeline::cpu::simd {

struct SplitGradProducts {
  const SplitEngine* engine = nullptr;  // null: not used
  RnnShape s{};
  // Gate gradients as the left operand of dw, sides (vector, block of units), and as the right one
  // of dx, one side per panel of a timestep, depth (gate, block of units). Depths of the rest:
  // panels of timesteps.
  SplitMatrix left{}, right{}, w{}, inputs{}, states{};
  float* dx_panels = nullptr;

  int64_t panels() const { return panels_of<float>(s.batch); }
  int64_t slices() const { return s.steps * panels(); }
  int64_t units() const { return split_blocks(s.hidden); }
  int64_t vectors() const { return gradient_vectors(s.cell); }
  int64_t wide() const { return vectors() * s.hidden; }

  void allot(const RnnShape& shape, Scratch& scratch) {
    s = shape;
    left = take_split(scratch, engine, vectors() * units(), slices());
    w = take_split(scratch, engine, split_blocks(s.in), gates(s.cell) * units());
    right = take_split(scratch, engine, slices(), w.depth);
    inputs = take_split(scratch, engine, split_blocks(s.in), slices());
    states = take_split(scratch, engine, units(), slices());
    dx_panels = scratch.take<float>(size_t(slices() * s.in * kSplitSide));
  }

  // Packs what does not need the gate gradients: one of kPackParts parts of the weights, and a
  // timestep. A barrier must follow before run().
  void pack(const GradOperands<float>& o, int part, int64_t d) const {
    for (int64_t gate = 0; gate < gates(s.cell) && o.dx != nullptr; ++gate) {
      w.take_left_transposed(o.w_ih[d] + gate * s.hidden * s.in, s.in, s.in, s.hidden,
                             split(w.sides, part, kPackParts), gate * units(), units());
    }
  }
  void take_step(const GradOperands<float>& o, int64_t d, int64_t t) const {
    for (int64_t slice = t * panels(); slice < (t + 1) * panels(); ++slice) {
      if (d == 0) {
        take_rows(inputs, s.in, slice,
                  [&](int64_t b) { return input_at(s, o.x, o.lengths, b, t); });
      }
      take_rows(states, s.hidden, slice,
                [&](int64_t b) { return state_before(s, o.y, o.h0, o.lengths, b, d, t); });
    }
  }

  void run(const GradOperands<float>& o, ThreadPool& pool, const WorkStealing& work, int thread,
           int64_t& round, int64_t d, const float* gradients) const {
    work.run(thread, round++, slices(),
             [&](int64_t slice) { take_gates(gradients, slice, o.dx != nullptr); });
    pool.barrier();
    engine->begin();
    if (o.dx != nullptr) {
      const SplitProductArgs args = product_dx(d);
      work.run(thread, round++, split_tasks(args),
               [&](int64_t task) { split_multiply_task(args, task); });
      // Between barriers, because the parts of several threads may take turns on one.
      engine->end();
      pool.barrier();
      engine->begin();
    }
    weights(o, work, thread, round++, d, gradients);
    engine->end();
    if (o.dx != nullptr && d + 1 == s.directions()) o.put_dx(s, dx_panels, pool, thread);
  }

 private:
  int64_t samples(int64_t slice) const {
    return std::min(kSplitSide, s.batch - slice % panels() * kSplitSide);
  }

  // row(b) returns the row of sample b, `width` long; null for zeros.
  template <typename F>
  void take_rows(const SplitMatrix& to, int64_t width, int64_t slice, F row) const {
    const int64_t first = slice % panels() * kSplitSide;
    alignas(64) float block[kSplitSide * kSplitSide];
    for (int64_t j = 0; j < to.sides; ++j) {
      const int64_t column = j * kSplitSide, count = std::min(kSplitSide, width - column);
      for (int64_t i = 0; i < samples(slice); ++i) {
        const float* from = row(first + i);
        copy_or_clear(from != nullptr ? from + column : nullptr, count, block + i * kSplitSide);
      }
      engine->split_right(block, kSplitSide, samples(slice), count, to.at(j, slice));
    }
  }

  void take_gates(const float* gradients, int64_t slice, bool for_dx) const {
    const int64_t H = s.hidden, first = kernel_vector(s.cell, 0);
    for (int64_t vector = 0; vector < vectors(); ++vector) {
      for (int64_t block = 0; block < units(); ++block) {
        const int64_t unit = block * kSplitSide, gate = vector - first;
        const float* from = gradients + (slice * wide() + vector * H + unit) * kSplitSide;
        engine->split_left(from, kSplitSide, H - unit, samples(slice),
                           left.at(vector * units() + block, slice));
        if (!for_dx || gate < 0) continue;
        engine->split_right(from, kSplitSide, H - unit, samples(slice),
                            right.at(slice, gate * units() + block));
      }
    }
  }

  SplitProductArgs product_dx(int64_t d) const {
    const int64_t square = kSplitSide * kSplitSide, columns = slices() * kSplitSide;
    SplitProductArgs args{w,          right, dx_panels, square, s.in * kSplitSide,
                          kSplitSide, s.in,  columns};
    args.add = d > 0;
    return args;
  }

  // Returns the product for dw of a gate by one of the operands.
  SplitProductArgs product_dw(int64_t vector, const SplitMatrix& of, int64_t width,
                              float* dw) const {
    SplitMatrix rows = left;
    rows.sides = units();
    rows.blocks = left.at(vector * units(), 0);
    return {rows, of, dw, kSplitSide * width, kSplitSide, width, s.hidden, width};
  }

  void weights(const GradOperands<float>& o, const WorkStealing& work, int thread, int64_t round,
               int64_t d, const float* gradients) const {
    const int64_t H = s.hidden, G = gates(s.cell);
    const auto of_x = [&](int64_t gate) {
      const int64_t vector = gate + kernel_vector(s.cell, 0);
      return product_dw(vector, inputs, s.in, o.dw_ih[d] + gate * H * s.in);
    };
    const auto of_h = [&](int64_t gate) {
      const int64_t vector = gate + state_shift(s.cell, gate);
      return product_dw(vector, states, H, o.dw_hh[d] + gate * H * H);
    };
    const int64_t count_x = split_tasks(of_x(0)), count = count_x + split_tasks(of_h(0));
    const int64_t sums = o.db_ih[d] != nullptr ? vectors() * units() : 0;
    work.run(thread, round, G * count + sums, [&](int64_t task) {
      if (task >= G * count) return biases(o, d, gradients, task - G * count);
      const int64_t gate = task / count, part = task % count;
      if (part < count_x) {
        split_multiply_task(of_x(gate), part);
      } else {
        split_multiply_task(of_h(gate), part - count_x);
      }
    });
  }

  // Sums the biases' gradients of a block of units of one vector.
  void biases(const GradOperands<float>& o, int64_t d, const float* gradients, int64_t task) const {
    const int64_t H = s.hidden, vector = task / units(), unit = task % units() * kSplitSide;
    const int64_t count = std::min(kSplitSide, H - unit);
    float sums[kSplitSide * kSplitSide] = {};
    for (int64_t slice = 0; slice < slices(); ++slice) {
      const float* from = gradients + (slice * wide() + vector * H + unit) * kSplitSide;
      for (int64_t i = 0; i < count * kSplitSide; ++i) sums[i] += from[i];
    }
    const int64_t gate_ih = vector - kernel_vector(s.cell, 0);
    for (int64_t u = 0; u < count; ++u) {
      float total = 0;
      for (int64_t i = 0; i < kSplitSide; ++i) total += sums[u * kSplitSide + i];
      if (gate_ih >= 0) o.db_ih[d][gate_ih * H + unit + u] = total;
      if (vector < gates(s.cell)) {
        o.db_hh[d][recurrent_gate(s.cell, vector) * H + unit + u] = total;
      }
    }
  }
};

}  // namespace ridgeline::cpu::simd
