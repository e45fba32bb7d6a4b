#pragma once

#include <algorithm>
#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/layout.h"
#include "ridgeline/ops/recurrent.h"

// One time step of a recurrent layer in one direction, forward and backward: the product with the
// recurrent weights, packed once a pass, and all that follows it element by element, while the sums
// are still at hand. Each call does a range of hidden units of a range of samples on the calling
// thread. A sample's steps follow each other: threads that share out the units need a barrier
// between steps, threads that share out the samples none.
//
// Everything lies in panels of the batch (layout.h): [panels][features][kPanel]. A step's gates
// hold gate_vectors() vectors of H: on entry the products with the input, biases added; on exit
// what the reserve keeps, if it does.
namespace ridgeline::cpu::simd {

constexpr int64_t gate_vectors(CellKind cell) { return std::max<int64_t>(1, saved_vectors(cell)); }

// Columns of panel `panel` that hold samples [begin, end).
template <typename T>
constexpr Range columns_of(Range samples, int64_t panel) {
  const int64_t first = panel * kPanel<T>;
  return {std::max<int64_t>(samples.begin - first, 0), std::min(samples.end - first, kPanel<T>)};
}

// Panels with samples [begin, end).
template <typename T>
constexpr Range panels_with(Range samples) {
  return {samples.begin / kPanel<T>, panels_of<T>(samples.end)};
}

template <typename T>
struct RnnStepArgs {
  CellKind cell;
  int64_t hidden;
  Range samples;     // of the batch; begins on a multiple of kGroup<T>
  const T* w;        // pack()ed w_hh
  const T* bias_hn;  // gru: b_hh of the third gate, [H]; may be null
  const T *h, *c;    // panels [batch, H]: the state before; c for lstm only
  T* gates;          // panels [batch, gate_vectors * H]
  bool keeps;        // keeps the gates for the backward pass
  T *h_next, *c_next;
  // Samples that have ended, those with lengths <= time, keep their state; their gates become zero.
  // Panels [batch, 1]; null when no sample ends early.
  const T* lengths;
  T time;
};

// The gate gradients' vectors lie as i, f, g, o or hn, r, z, n: those that go through w_hh are one
// stretch, and so are those that go through w_ih. Gates of the weights for each of the former:
constexpr int64_t recurrent_gate(CellKind cell, int64_t vector) {
  return cell == CellKind::gru ? (vector + 2) % 3 : vector;
}
// Where vector v of the gate gradients as programs hold them (r, z, n, hn) lies.
constexpr int64_t kernel_vector(CellKind cell, int64_t v) {
  return cell == CellKind::gru ? (v + 1) % 4 : v;
}

// Backward, from the step after in the order of the pass to the one before.
template <typename T>
struct RnnGradStepArgs {
  CellKind cell;
  int64_t hidden;
  Range samples;   // of the batch; begins on a multiple of kGroup<T>
  const T* w;      // pack_transposed()ed w_hh
  const T* after;  // gate gradients of the step done before this one; null at the first
  const T* gates;  // the reserve of this step
  const T* y;      // rnn cells: h after the step; panels [batch, H] here and below
  // The state before: h (gru) or c (lstm) of the step before where that was at a time a sample has,
  // else the first one.
  const T *h, *h0;
  const T *c, *c0;
  int64_t c_stride;  // between panels of c
  T time_before;
  const T* dy;
  T* direct;         // what of dh goes past the weights; dhT at the first step
  T* dc;             // lstm; dcT at the first step
  T* gradients;      // gate gradients of this step, panels [batch, gradient_vectors * H]
  T* dh0;            // not null: only dh of the step before is wanted, and written here
  const T* lengths;  // never null; past the batch 0
  T time;
};

template <typename T>
struct RnnFunctions {
  int64_t (*units)(CellKind cell);  // of a tile; ranges of units are multiples of it
  int64_t (*grad_units)();          // likewise, backward
  // Tiles of [H][gates * units] and [gates * H][units], zeros past H, as depth-inl.h lays them out;
  // a range of tiles.
  void (*pack)(CellKind cell, int64_t hidden, const T* w_hh, T* packed, Range tiles);
  void (*pack_transposed)(CellKind cell, int64_t hidden, const T* w_hh, T* packed, Range tiles);
  void (*step)(const RnnStepArgs<T>&, Range units);
  void (*grad_step)(const RnnGradStepArgs<T>&, Range units);
  // What follows the products of a step, for up to kPanel<T> units of one panel, where something
  // else made them: sums[gate][kPanel<T> units][kPanel<T>] of h alone; back, sums[unit][kPanel<T>],
  // null for zeros. The `w` of the arguments is not read.
  void (*finish)(const RnnStepArgs<T>&, const T* sums, Range units, int64_t panel);
  void (*grad_finish)(const RnnGradStepArgs<T>&, const T* sums, Range units, int64_t panel);
};

template <typename T>
const RnnFunctions<T>& rnn_functions();

}  // namespace ridgeline::cpu::simd
