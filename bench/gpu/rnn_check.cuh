#pragma once

// The recurrences in double, one thread per unit and sample, to check kernels. States and gate
// gradients are rounded to T where the program keeps them in T, and nothing else is rounded.

#include "ridgeline/cuda/plain/index.cuh"
#include "ridgeline/cuda/recurrent/cell.cuh"
#include "ridgeline/cuda/recurrent/persistent.h"

namespace ridgeline::cuda::recurrent {

// One timestep forward for all units; h and c are those of the previous timestep, next_* those of
// this one.
template <Cell kCell, typename T>
__global__ void check_forward_kernel(PersistentForward<T> a, int step, const double* h,
                                     const double* c, double* next_h, double* next_c) {
  const Sequence& s = a.sequence;
  const int H = s.hidden;
  for (int64_t i = first_index(); i < int64_t(s.batch) * H; i += index_stride()) {
    const int b = int(i / H), j = int(i % H), length = s.length(b), t = s.time(step, length);
    next_h[i] = h[i];
    next_c[i] = c[i];
    T* y = a.y + s.place(b, t) * H + j;
    T* reserve = a.reserve + s.place(b, t) * cell_saved(kCell) * H + j;
    if (step >= length) {
      *y = T(0.0f);
      for (int v = 0; v < cell_saved(kCell); ++v) reserve[v * H] = T(0.0f);
      continue;
    }
    double gates[4] = {};
    for (int gate = 0; gate < cell_gates(kCell); ++gate) {
      const int64_t row = int64_t(gate) * H + j;
      double sum = a.b_hh ? double(a.b_hh[row]) : 0.0;
      for (int k = 0; k < H; ++k) sum += double(a.w_hh[row * H + k]) * h[int64_t(b) * H + k];
      double x = double(a.from_x[s.row(b, t) * cell_gates(kCell) * H + row]);
      if (a.b_ih) x += double(a.b_ih[row]);
      gates[gate] = gate_value<kCell>(gate, x, sum, gates);
      if (kCell == Cell::gru && gate == 2) gates[3] = sum;
    }
    double state = c[i];
    *y = T(float(next_state<kCell>(gates, h[i], state)));
    next_h[i] = double(float(*y));
    next_c[i] = state;
    for (int v = 0; v < cell_saved(kCell); ++v) {
      reserve[v * H] = T(float(v < 4 ? gates[v] : state));
    }
  }
}

// The gate gradients of a timestep; on return dh holds the part that goes to the previous timestep
// directly.
template <Cell kCell, typename T>
__global__ void check_backward_kernel(PersistentBackward<T> a, int step, double* dh, double* dc) {
  const Sequence& s = a.sequence;
  const int H = s.hidden;
  constexpr int kSaved = cell_saved(kCell);
  for (int64_t i = first_index(); i < int64_t(s.batch) * H; i += index_stride()) {
    const int b = int(i / H), j = int(i % H), length = s.length(b), t = s.time(step, length);
    const int64_t at = s.place(b, t);
    double g[4] = {};
    if (step < length) {
      UnitSaved<double> saved{};
      for (int v = 0; v < kSaved; ++v) {
        saved.gates[v] = double(float(a.reserve[(at * kSaved + v) * H + j]));
      }
      saved.y = double(float(a.y[at * H + j]));
      const T* first = kCell == Cell::lstm ? a.c0 : a.h0;
      if (step > 0) {
        const int64_t p = s.place(b, s.time(step - 1, length));
        saved.before = kCell == Cell::lstm ? double(float(a.reserve[(p * kSaved + 4) * H + j]))
                                           : double(float(a.y[p * H + j]));
      } else if (first != nullptr) {
        saved.before = double(float(first[i]));
      }
      dh[i] =
          unit_grad(unit_slopes<kCell>(saved), dh[i] + double(float(a.dy[at * H + j])), dc[i], g);
    }
    for (int v = 0; v < cell_vectors(kCell); ++v) {
      a.gate_gradients[(at * cell_vectors(kCell) + v) * H + j] = T(float(g[v]));
    }
  }
}

// dh += gate gradients of a timestep . w_hh
template <Cell kCell, typename T>
__global__ void check_back_product_kernel(PersistentBackward<T> a, int step, double* dh) {
  const Sequence& s = a.sequence;
  const int H = s.hidden;
  for (int64_t i = first_index(); i < int64_t(s.batch) * H; i += index_stride()) {
    const int b = int(i / H), k = int(i % H), length = s.length(b);
    const int64_t at = s.place(b, s.time(step, length)) * cell_vectors(kCell);
    double sum = 0;
    for (int gate = 0; gate < cell_gates(kCell); ++gate) {
      const T* g = a.gate_gradients + (at + hidden_vector(kCell, gate)) * H;
      for (int j = 0; j < H; ++j) {
        sum += double(float(g[j])) * double(float(a.w_hh[(int64_t(gate) * H + j) * H + k]));
      }
    }
    dh[i] += sum;
  }
}

}  // namespace ridgeline::cuda::recurrent
