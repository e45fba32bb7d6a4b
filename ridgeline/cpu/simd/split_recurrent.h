#pragma once

#include "ridgeline/cpu/simd/panels_recurrent.h"
#include "ridgeline/cpu/simd/split_matrix.h"

// The products of a recurrent layer by blocks of split_product.h, fp32: in the same passes as the
// kernels of recurrent.h, which apply the elementwise functions.
namespace ridgeline::cpu::simd {

// Selects which products are computed by blocks (null: none), and how the threads divide the work.
struct SplitChoice {
  const SplitEngine* large = nullptr;  // those of all timesteps at once
  const SplitEngine* small = nullptr;  // those of one timestep
  bool batch_parallel = false;  // each thread computes all units of its samples; no engines then
};

inline SplitMatrix take_split(Scratch& scratch, const SplitEngine* engine, int64_t sides,
                              int64_t depth) {
  SplitMatrix matrix{engine, sides, depth, nullptr};
  matrix.blocks = scratch.take<uint16_t>(matrix.size());
  return matrix;
}

// The product of the inputs of all timesteps with all gates.
struct SplitInputs {
  const SplitEngine* engine = nullptr;  // null: not used
  RnnShape s{};
  SplitMatrix w{}, x{};

  int64_t panels() const { return panels_of<float>(s.batch); }

  void allot(Scratch& scratch) {
    w = take_split(scratch, engine, split_blocks(s.gate_rows()), split_blocks(s.in));
    x = take_split(scratch, engine, s.steps * panels(), w.depth);
  }

  void pack(const float* w_ih, int thread, int threads) const {
    w.take_left(w_ih, s.in, s.gate_rows(), s.in, ridgeline::split(w.sides, thread, threads));
  }

  // Takes timestep t of x, from its panels.
  void take_x(const float* x_panels, int64_t t) const {
    for (int64_t p = t * panels(); p < (t + 1) * panels(); ++p) {
      x.take_panel(x_panels + p * s.in * kSplitSide, s.in, p);
    }
  }

  // Writes panels [T][panels][wide][kPanel].
  SplitProductArgs product(const float* bias, float* all, int64_t wide) const {
    const int64_t columns = x.sides * kSplitSide, square = kSplitSide * kSplitSide;
    return {w, x, all, square, wide * kSplitSide, kSplitSide, s.gate_rows(), columns, bias};
  }
};

// One timestep, in tasks of 32 hidden units (all of their gates) of one panel of the batch. A task
// splits its result directly, as the operand of the next timestep.
struct SplitSteps {
  const SplitEngine* engine = nullptr;  // null: not used
  RnnShape s{};
  SplitMatrix w{}, h[2] = {};  // w: sides (block of units, gate)

  int64_t units() const { return split_blocks(s.hidden); }
  int64_t panels() const { return panels_of<float>(s.batch); }
  int64_t tasks() const { return units() * panels(); }

  void allot(Scratch& scratch) {
    w = take_split(scratch, engine, units() * ridgeline::gates(s.cell), units());
    for (SplitMatrix& each : h) each = take_split(scratch, engine, panels(), units());
  }

  // Packs this thread's share of the weights' blocks.
  void pack(const float* w_hh, int thread, int threads) const {
    const int64_t H = s.hidden, gates = ridgeline::gates(s.cell);
    const Range sides = ridgeline::split(w.sides, thread, threads);
    for (int64_t i = sides.begin; i < sides.end; ++i) {
      const int64_t unit = i / gates * kSplitSide;
      for (int64_t k = 0; k < w.depth; ++k) {
        engine->split_left(w_hh + (i % gates * H + unit) * H + k * kSplitSide, H, H - unit,
                           H - k * kSplitSide, w.at(i, k));
      }
    }
  }

  void take_h(const float* state, int64_t task, const SplitMatrix& to) const {
    const int64_t block = task / panels(), p = task % panels(), unit = block * kSplitSide;
    engine->split_right(state + (p * s.hidden + unit) * kSplitSide, kSplitSide, s.hidden - unit,
                        s.batch - p * kSplitSide, to.at(p, block));
  }
  void start(const float* state) const {
    for (int64_t task = 0; task < tasks(); ++task) take_h(state, task, h[0]);
  }

  // Runs timestep number `step`; h[step % 2] is the state before.
  void run(const RnnStepArgs<float>& a, int64_t step, int64_t task) const {
    const int64_t gates = ridgeline::gates(s.cell), block = task / panels(), p = task % panels();
    const int64_t unit = block * kSplitSide;
    alignas(64) float sums[4 * kSplitSide * kSplitSide];
    for (int64_t gate = 0; gate < gates; ++gate) {
      engine->multiply(w.at(block * gates + gate, 0), h[step % 2].at(p, 0), units(),
                       sums + gate * kSplitSide * kSplitSide, kSplitSide, false);
    }
    rnn_functions<float>().finish(a, sums, {unit, std::min(unit + kSplitSide, s.hidden)}, p);
    take_h(a.h_next, task, h[(step + 1) % 2]);
  }
};

// The backward counterpart.
struct SplitGradSteps {
  const SplitEngine* engine = nullptr;  // null: not used
  RnnShape s{};
  SplitMatrix w{}, after[2] = {};  // depth: (vector, block of units)

  int64_t units() const { return split_blocks(s.hidden); }
  int64_t panels() const { return panels_of<float>(s.batch); }
  int64_t tasks() const { return units() * panels(); }

  void allot(Scratch& scratch) {
    w = take_split(scratch, engine, units(), ridgeline::gates(s.cell) * units());
    for (SplitMatrix& each : after) each = take_split(scratch, engine, panels(), w.depth);
  }

  void pack(const float* w_hh, Range blocks) const {
    const int64_t H = s.hidden;
    for (int64_t vector = 0; vector < ridgeline::gates(s.cell); ++vector) {
      const float* of_gate = w_hh + recurrent_gate(s.cell, vector) * H * H;
      w.take_left_transposed(of_gate, H, H, H, blocks, vector * units(), units());
    }
  }

  // Runs timestep number `step`; after[(step + 1) % 2] has the gate gradients of the timestep
  // before.
  void run(const RnnGradStepArgs<float>& a, int64_t step, int64_t task) const {
    const int64_t H = s.hidden, wide = gradient_vectors(s.cell) * H;
    const int64_t block = task / panels(), p = task % panels(), unit = block * kSplitSide;
    alignas(64) float sums[kSplitSide * kSplitSide];
    if (a.after != nullptr) {
      engine->multiply(w.at(block, 0), after[(step + 1) % 2].at(p, 0), w.depth, sums, kSplitSide,
                       false);
    }
    rnn_functions<float>().grad_finish(a, a.after != nullptr ? sums : nullptr,
                                       {unit, std::min(unit + kSplitSide, H)}, p);
    if (a.dh0 != nullptr) return;
    for (int64_t vector = 0; vector < ridgeline::gates(s.cell); ++vector) {
      engine->split_right(a.gradients + (p * wide + vector * H + unit) * kSplitSide, kSplitSide,
                          H - unit, s.batch - p * kSplitSide,
                          after[step % 2].at(p, vector * units() + block));
    }
  }
};

// Makes one of several kernels that differ in which products they split.
inline Kernel split_kernel(std::string name, const SplitChoice& choice,
                           Cover (*covers)(const RemainingOps&, const SplitChoice&),
                           std::unique_ptr<Step> (*prepare)(const Span&, const Binding&,
                                                            const SplitChoice&)) {
  Kernel kernel;
  kernel.name = std::move(name);
  kernel.covers = [=](const RemainingOps& rest) { return covers(rest, choice); };
  kernel.prepare = [=](const Span& span, const Binding& binding) {
    return prepare(span, binding, choice);
  };
  return kernel;
}

}  // namespace ridgeline::cpu::simd
