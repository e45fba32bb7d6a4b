#pragma once

#include "ridgeline/cuda/recurrent/cell.h"

// The gate functions of one hidden unit of one sample. A is float or double.
namespace ridgeline::cuda::recurrent {

// The exact functions; approximations may replace them.
struct ExactMath {
  template <typename A>
  static __device__ A sigmoid(A x) {
    return A(1) / (A(1) + exp(-x));
  }
  template <typename A>
  static __device__ A tanh(A x) {
    return ::tanh(x);
  }
};

// The value of a gate, from the sums with x and with h (biases included): lstm i, f, g, o; gru r,
// z, n, where n takes r from `gates`; for the other cells h' itself.
template <Cell kCell, typename Math = ExactMath, typename A>
__device__ inline A gate_value(int gate, A from_x, A from_h, const A* gates) {
  if constexpr (kCell == Cell::rnn_relu) {
    const A sum = from_x + from_h;
    return sum < A(0) ? A(0) : sum;
  } else if constexpr (kCell == Cell::rnn_tanh) {
    return Math::tanh(from_x + from_h);
  } else if constexpr (kCell == Cell::gru) {
    return gate == 2 ? Math::tanh(from_x + gates[0] * from_h) : Math::sigmoid(from_x + from_h);
  } else {
    return gate == 2 ? Math::tanh(from_x + from_h) : Math::sigmoid(from_x + from_h);
  }
}

// Computes h' from the gates and updates c.
template <Cell kCell, typename Math = ExactMath, typename A>
__device__ inline A next_state(const A* gates, A h, A& c) {
  if constexpr (kCell == Cell::gru) {
    return (A(1) - gates[1]) * gates[2] + gates[1] * h;
  } else if constexpr (kCell == Cell::lstm) {
    c = gates[1] * c + gates[0] * gates[2];
    return gates[3] * Math::tanh(c);
  } else {
    return gates[0];
  }
}

// The backward pass of a unit reads these: the reserve, y, and the state before the timestep (h for
// gru, c for lstm).
template <typename A>
struct UnitSaved {
  A gates[5];
  A y, before;
};

// The factors of dh and dc in the gate gradients of a unit, which are known before dh and dc.
template <Cell kCell, typename A>
struct UnitSlopes {
  A gates[cell_vectors(kCell)];
  A h;       // the part of dh that goes to the previous timestep directly, not through the weights
  A c;       // the part of dc
  A from_h;  // for c's own gradient: how much of dh is added to it
};
template <Cell kCell, typename Math = ExactMath, typename A>
__device__ inline UnitSlopes<kCell, A> unit_slopes(const UnitSaved<A>& saved) {
  const A* s = saved.gates;
  const A one = A(1);
  UnitSlopes<kCell, A> to{};
  if constexpr (kCell == Cell::rnn_relu) {
    to.gates[0] = saved.y > A(0) ? one : A(0);
  } else if constexpr (kCell == Cell::rnn_tanh) {
    to.gates[0] = one - saved.y * saved.y;
  } else if constexpr (kCell == Cell::gru) {
    const A r = s[0], z = s[1], n = s[2], hn = s[3];
    const A dn = (one - z) * (one - n * n);
    to.gates[0] = dn * hn * r * (one - r);
    to.gates[1] = (saved.before - n) * z * (one - z);
    to.gates[2] = dn;
    to.gates[3] = dn * r;
    to.h = z;
  } else {
    const A i = s[0], f = s[1], g = s[2], o = s[3], tc = Math::tanh(s[4]);
    to.from_h = o * (one - tc * tc);
    to.gates[0] = g * i * (one - i);
    to.gates[1] = saved.before * f * (one - f);
    to.gates[2] = i * (one - g * g);
    to.gates[3] = tc * o * (one - o);
    to.c = f;
  }
  return to;
}

// Writes the gate gradients and returns the part of dh that goes to the previous timestep directly.
// dc is updated for the previous timestep.
template <Cell kCell, typename A>
__device__ inline A unit_grad(const UnitSlopes<kCell, A>& slopes, A dh, A& dc, A* gradients) {
  if constexpr (kCell == Cell::rnn_relu) {
    gradients[0] = slopes.gates[0] > A(0) ? dh : A(0);  // 0 even if dh is NaN
    return A(0);
  } else if constexpr (kCell == Cell::lstm) {
    const A total = dc + dh * slopes.from_h;
    for (int v = 0; v < 3; ++v) gradients[v] = total * slopes.gates[v];
    gradients[3] = dh * slopes.gates[3];
    dc = total * slopes.c;
    return A(0);
  } else {
    for (int v = 0; v < cell_vectors(kCell); ++v) gradients[v] = dh * slopes.gates[v];
    return kCell == Cell::gru ? dh * slopes.h : A(0);
  }
}

}  // namespace ridgeline::cuda::recurrent
