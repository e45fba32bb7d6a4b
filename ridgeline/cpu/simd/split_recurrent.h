#pragma once

#include "ridgeline/cpu/simd/panels_recurrent.h"
#include "ridgeline/cpu/simd/split_matrix.h"

// The products of a recurrent layer by blocks of split_product.h, fp32: the same passes as with the
// kernels of recurrent.h, which do what follows the sums. A thread has blocks of 32 hidden units,
// all gates of them; what it makes of a step it splits at once, as the next step's operand.
namespace ridgeline::cpu::simd {

struct SplitForward {
  const SplitEngine* engine = nullptr;  // null: not used
  RnnShape s{};
  SplitMatrix w_ih{}, w_hh{}, x{}, h[2] = {};  // w_hh: sides (block of units, gate)

  int64_t units() const { return split_blocks(s.hidden); }
  int64_t panels() const { return panels_of<float>(s.batch); }

  void allot(Scratch& scratch) {
    const int64_t deep = split_blocks(s.in), gates = ridgeline::gates(s.cell);
    const auto take = [&](int64_t sides, int64_t depth) {
      SplitMatrix matrix{engine, sides, depth, nullptr};
      matrix.blocks = scratch.take<uint16_t>(matrix.size());
      return matrix;
    };
    w_ih = take(split_blocks(s.gate_rows()), deep);
    w_hh = take(units() * gates, units());
    x = take(s.steps * panels(), deep);
    for (SplitMatrix& each : h) each = take(panels(), units());
  }

  // This thread's share of the weights' blocks.
  void pack(const float* ih, const float* hh, int thread, int threads) const {
    const int64_t H = s.hidden, gates = ridgeline::gates(s.cell);
    w_ih.take_left(ih, s.in, s.gate_rows(), s.in, ridgeline::split(w_ih.sides, thread, threads));
    const Range sides = ridgeline::split(w_hh.sides, thread, threads);
    for (int64_t i = sides.begin; i < sides.end; ++i) {
      const int64_t unit = i / gates * kSplitSide;
      for (int64_t k = 0; k < w_hh.depth; ++k) {
        engine->split_left(hh + (i % gates * H + unit) * H + k * kSplitSide, H, H - unit,
                           H - k * kSplitSide, w_hh.at(i, k));
      }
    }
  }

  // Step t of x, from its panels.
  void take_x(const float* x_panels, int64_t t) const {
    for (int64_t p = t * panels(); p < (t + 1) * panels(); ++p) {
      x.take_panel(x_panels + p * s.in * kSplitSide, s.in, p);
    }
  }

  void take_h(const float* state, int64_t unit_block, const SplitMatrix& to) const {
    for (int64_t p = 0; p < panels(); ++p) {
      const int64_t unit = unit_block * kSplitSide;
      engine->split_right(state + (p * s.hidden + unit) * kSplitSide, kSplitSide, s.hidden - unit,
                          s.batch - p * kSplitSide, to.at(p, unit_block));
    }
  }

  // Panels [T][panels][wide][kPanel] of the products with x of all steps.
  void input_products(const float* bias, float* all, int64_t wide, int thread, int threads) const {
    SplitProductArgs args{w_ih,
                          x,
                          all,
                          kSplitSide * kSplitSide,
                          wide * kSplitSide,
                          kSplitSide,
                          s.gate_rows(),
                          x.sides * kSplitSide,
                          bias};
    if (x.sides >= threads) {
      split_multiply(args, {0, w_ih.sides}, ridgeline::split(x.sides, thread, threads));
    } else {
      split_multiply(args, ridgeline::split(w_ih.sides, thread, threads), {0, x.sides});
    }
  }

  // Step number `step`, of which parity h[step % 2] is the state before. Every second step goes
  // through the weights from the end: what was read last is still in the cache.
  void run(const RnnStepArgs<float>& a, int64_t step, Range blocks) const {
    const int64_t gates = ridgeline::gates(s.cell), count = blocks.end - blocks.begin;
    alignas(64) float sums[4 * kSplitSide * kSplitSide];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t block = step % 2 == 0 ? blocks.begin + i : blocks.end - 1 - i;
      const int64_t unit = block * kSplitSide;
      const Range range{unit, std::min(unit + kSplitSide, s.hidden)};
      for (int64_t p = 0; p < panels(); ++p) {
        for (int64_t gate = 0; gate < gates; ++gate) {
          engine->multiply(w_hh.at(block * gates + gate, 0), h[step % 2].at(p, 0), units(),
                           sums + gate * kSplitSide * kSplitSide, kSplitSide, false);
        }
        rnn_kernels<float>().finish(a, sums, range, p);
      }
      take_h(a.h_next, block, h[(step + 1) % 2]);
    }
  }
};

struct SplitBackward {
  const SplitEngine* engine = nullptr;  // null: not used
  RnnShape s{};
  SplitMatrix w{}, after[2] = {};  // depth: (gate, block of units)

  int64_t units() const { return split_blocks(s.hidden); }
  int64_t panels() const { return panels_of<float>(s.batch); }

  void allot(Scratch& scratch) {
    const int64_t depth = ridgeline::gates(s.cell) * units();
    w = {engine, units(), depth, nullptr};
    w.blocks = scratch.take<uint16_t>(w.size());
    for (SplitMatrix& each : after) {
      each = {engine, panels(), depth, nullptr};
      each.blocks = scratch.take<uint16_t>(each.size());
    }
  }

  void pack(const float* hh, Range blocks) const {
    const int64_t H = s.hidden;
    for (int64_t gate = 0; gate < ridgeline::gates(s.cell); ++gate) {
      w.take_left_transposed(hh + gate * H * H, H, H, H, blocks, gate * units(), units());
    }
  }

  // Step number `step`; after[(step + 1) % 2] has the gate gradients of the step done before.
  void run(const RnnGradStepArgs<float>& a, int64_t step, Range blocks) const {
    const int64_t H = s.hidden, count = blocks.end - blocks.begin;
    const int64_t wide = gradient_vectors(s.cell) * H;
    alignas(64) float sums[kSplitSide * kSplitSide];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t block = step % 2 == 0 ? blocks.begin + i : blocks.end - 1 - i;
      const int64_t unit = block * kSplitSide;
      const Range range{unit, std::min(unit + kSplitSide, H)};
      for (int64_t p = 0; p < panels(); ++p) {
        if (a.after != nullptr) {
          engine->multiply(w.at(block, 0), after[(step + 1) % 2].at(p, 0), w.depth, sums,
                           kSplitSide, false);
        }
        rnn_kernels<float>().grad_finish(a, a.after != nullptr ? sums : nullptr, range, p);
        if (a.dh0 != nullptr) continue;
        for (int64_t gate = 0; gate < ridgeline::gates(s.cell); ++gate) {
          engine->split_right(a.gradients + (p * wide + gate * H + unit) * kSplitSide, kSplitSide,
                              H - unit, s.batch - p * kSplitSide,
                              after[step % 2].at(p, gate * units() + block));
        }
      }
    }
  }
};

}  // namespace ridgeline::cpu::simd
