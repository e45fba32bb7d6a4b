#pragma once

#include <algorithm>
#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/layout.h"
#include "ridgeline/ops/recurrent.h"

// One timestep of a recurrent layer in one direction, forward and backward: the product with the
// recurrent weights, packed once per pass, and the elementwise functions after it, while the sums
// are in registers. Each call computes a range of hidden units of a range of samples on the calling
// thread. A sample's timesteps depend on each other: threads that divide the units need a barrier
// between timesteps, threads that divide the samples need none.
//
// Everything is in panels of the batch (layout.h): [panels][features][kPanel]. A timestep's gates
// hold gate_vectors() vectors of H: on entry the products with the input, with biases; on exit the
// reserve, if it is kept.
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
  // Samples that have ended, those with lengths <= time, keep their state, and their gates become
  // zero. Panels [batch, 1]; null if no sample ends early.
  const T* lengths;
  T time;
};

// The vectors of gate gradients are ordered i, f, g, o or hn, r, z, n, so that those that are
// multiplied by w_hh are contiguous, and those by w_ih too. Returns the gate of the weights for
// each of the former.
constexpr int64_t recurrent_gate(CellKind cell, int64_t vector) {
  return cell == CellKind::gru ? (vector + 2) % 3 : vector;
}
// Returns the position of vector v of the gate gradients in a program's order (r, z, n, hn).
constexpr int64_t kernel_vector(CellKind cell, int64_t v) {
  return cell == CellKind::gru ? (v + 1) % 4 : v;
}

// The backward pass, from the later timestep in the order of the pass to the earlier one.
template <typename T>
struct RnnGradStepArgs {
  CellKind cell;
  int64_t hidden;
  Range samples;   // of the batch; begins on a multiple of kGroup<T>
  const T* w;      // pack_transposed()ed w_hh
  const T* after;  // gate gradients of the timestep computed before this one; null at the first
  const T* gates;  // the reserve of this step
  const T* y;      // rnn cells: h after the step; panels [batch, H] here and below
  // The state before: h (gru) or c (lstm) of the earlier timestep if the sample has it, else the
  // initial one.
  const T *h, *h0;
  const T *c, *c0;
  int64_t c_stride;  // between panels of c
  T time_before;
  const T* dy;
  T* direct;         // the part of dh that does not go through the weights; dhT at the first step
  T* dc;             // lstm; dcT at the first step
  T* gradients;      // gate gradients of this step, panels [batch, gradient_vectors * H]
  T* dh0;            // if not null, only dh of the earlier timestep is wanted, and written here
  const T* lengths;  // never null; 0 past the batch
  T time;
};

template <typename T>
struct RnnFunctions {
  int64_t (*units)(CellKind cell);  // of a tile; ranges of units are multiples of it
  int64_t (*grad_units)();          // the same for the backward pass
  // Packs tiles of [H][gates * units] and [gates * H][units], zeros past H, in the layout of
  // depth-inl.h; a range of tiles.
  void (*pack)(CellKind cell, int64_t hidden, const T* w_hh, T* packed, Range tiles);
  void (*pack_transposed)(CellKind cell, int64_t hidden, const T* w_hh, T* packed, Range tiles);
  void (*step)(const RnnStepArgs<T>&, Range units);
  void (*grad_step)(const RnnGradStepArgs<T>&, Range units);
  // The elementwise functions of a timestep, for up to kPanel<T> units of one panel, if other code
  // computed the products: sums[gate][kPanel<T> units][kPanel<T>] of h alone; backward,
  // sums[unit][kPanel<T>], null for zeros. The `w` of the arguments is not read.
  void (*finish)(const RnnStepArgs<T>&, const T* sums, Range units, int64_t panel);
  void (*grad_finish)(const RnnGradStepArgs<T>&, const T* sums, Range units, int64_t panel);
};

template <typename T>
const RnnFunctions<T>& rnn_functions();

}  // namespace ridgeline::cpu::simd
