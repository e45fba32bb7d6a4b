#pragma once

#include <fmt/core.h>

#include <array>
#include <string>

#include "ridgeline/ops/value.h"

namespace ridgeline {

// Recurrent layers in PyTorch's forms and gate orders. One op is one layer over a whole sequence,
// in one direction or in both; a stack is several such ops in a row, so that a kernel may cover one
// layer or, as a wavefront, all of them.
//
// Plain layout: batch first, [B, T, features], like all values of a program. With both directions y
// is [B, T, 2H], forward first. States are [D, B, H], with D directions.
// A kernel that wants time first asks for it as a format.
//
// With `lengths`, sample b has lengths[b] timesteps, 0 <= lengths[b] <= T: padding never affects
// the result. y and the reserve are zero there, hT and cT are those of the last timestep (h0 and c0
// for an empty sample), the reverse direction begins there, and gradients are zero in the padding.

enum class CellKind : uint8_t {
  rnn_relu,  // h' = relu(a), a = w_ih x + b_ih + w_hh h + b_hh
  rnn_tanh,  // h' = tanh(a)
  gru,       // gates r, z, n: n = tanh(w_in x + b_in + r * (w_hn h + b_hn)); h' = (1-z) n + z h
  lstm,      // gates i, f, g, o: c' = f c + i g; h' = o tanh(c')
};
enum class Direction : uint8_t { forward, reverse, both };

const char* name(CellKind cell);
const char* name(Direction direction);

// Rows of w_ih, w_hh and the biases are gates() * H.
constexpr int64_t gates(CellKind cell) {
  return cell == CellKind::lstm ? 4 : cell == CellKind::gru ? 3 : 1;
}
// Vectors of H per timestep that the reserve keeps for the backward pass. lstm: i, f, g, o, c'.
// gru: r, z, n and w_hn h + b_hn. The others need only y.
constexpr int64_t saved_vectors(CellKind cell) {
  return cell == CellKind::lstm ? 5 : cell == CellKind::gru ? 4 : 0;
}
// Vectors of H per timestep of gate gradients: the derivatives by the sums inside the gates. gru
// has a fourth, by w_hn h + b_hn, which is its third times r.
constexpr int64_t gradient_vectors(CellKind cell) {
  return cell == CellKind::lstm || cell == CellKind::gru ? 4 : 1;
}
// Cost of one element's gates, for the roofline: 20 per sigmoid or tanh (as in Activation), 1 per
// addition or multiplication.
constexpr double gate_flops(CellKind cell) {
  switch (cell) {
    case CellKind::lstm:
      return 5 * 20 + 4;
    case CellKind::gru:
      return 3 * 20 + 5;
    case CellKind::rnn_tanh:
      return 20;
    case CellKind::rnn_relu:
      break;
  }
  return 1;
}
constexpr double gate_gradient_flops(CellKind cell) {
  return cell == CellKind::lstm ? 20 + 22 : cell == CellKind::gru ? 18 : 3;
}

struct RnnShape {
  CellKind cell = CellKind::lstm;
  Direction direction = Direction::forward;
  int64_t steps = 1, batch = 1, in = 1, hidden = 1;  // T, B, features of x, H

  int64_t directions() const { return direction == Direction::both ? 2 : 1; }
  bool reverse(int64_t d) const { return d == 1 || direction == Direction::reverse; }
  int64_t gate_rows() const { return gates(cell) * hidden; }
  int64_t rows() const { return steps * batch; }

  Shape x() const { return {batch, steps, in}; }
  Shape y() const { return {batch, steps, directions() * hidden}; }
  Shape state() const { return {directions(), batch, hidden}; }
  // [B, T, D, vectors, H]
  Shape reserve() const { return {batch, steps, directions(), saved_vectors(cell), hidden}; }
  Shape gate_gradients() const {
    return {batch, steps, directions(), gradient_vectors(cell), hidden};
  }
  Shape w_ih() const { return {gate_rows(), in}; }
  Shape w_hh() const { return {gate_rows(), hidden}; }
  Shape bias() const { return {gate_rows()}; }

  // Multiplications and additions of one product of all steps with w_ih or w_hh.
  double product_flops(int64_t width) const {
    return 2.0 * double(directions()) * double(rows()) * double(gate_rows()) * double(width);
  }
  double elements() const { return double(directions()) * double(rows()) * double(hidden); }

  std::string text() const {
    return fmt::format("{},{},T={},B={},in={},H={}", name(cell), name(direction), steps, batch, in,
                       hidden);
  }
};

// The weights, or their gradients, of one direction. Either both biases are present or neither is.
struct RnnWeights {
  Value w_ih, w_hh, b_ih, b_hh;

  Values values() const { return {w_ih, w_hh, b_ih, b_hh}; }
};
using RnnDirections = std::array<RnnWeights, 2>;  // the second is used with both directions only

inline Values values_of(const RnnDirections& weights, Values more) {
  for (const RnnWeights& each : weights) {
    for (const Value& value : each.values()) more.push_back(value);
  }
  return more;
}

struct Rnn {
  RnnShape shape;
  Value x;
  RnnDirections weights;
  Value h0, c0;   // optional: zero when absent; c0 for lstm only
  Value lengths;  // optional, [B] int32
  Value y;
  Value hT, cT;   // optional
  Value reserve;  // optional: for RnnGrad; absent when not training

  static constexpr const char* kName = "rnn";
  Values reads() const { return values_of(weights, {x, h0, c0, lengths}); }
  Values writes() const { return {y, hT, cT, reserve}; }
  std::string attributes() const { return shape.text(); }
  double flops() const {
    return shape.product_flops(shape.in) + shape.product_flops(shape.hidden) +
           gate_flops(shape.cell) * shape.elements();
  }
  double bytes() const { return size_of(reads()) + size_of(writes()); }
};

// Backpropagation through time: from dy, dhT and dcT to the gate gradients of every timestep and to
// dh0 and dc0. Everything is written, not added to.
struct RnnGrad {
  RnnShape shape;
  Value y, reserve;
  RnnDirections weights;  // w_hh only
  Value h0, c0, lengths;  // as in Rnn
  Value dy;
  Value dhT, dcT;        // optional: zero when absent
  Value gate_gradients;  // [B, T, D, vectors, H]
  Value dh0, dc0;        // optional

  static constexpr const char* kName = "rnn_grad";
  Values reads() const {
    return {y, reserve, weights[0].w_hh, weights[1].w_hh, h0, c0, lengths, dy, dhT, dcT};
  }
  Values writes() const { return {gate_gradients, dh0, dc0}; }
  std::string attributes() const { return shape.text(); }
  double flops() const {
    return shape.product_flops(shape.hidden) + gate_gradient_flops(shape.cell) * shape.elements();
  }
  double bytes() const { return size_of(reads()) + size_of(writes()); }
};

// dx[B, T, in] = sum over directions of gate gradients . w_ih: one large product
struct RnnGradX {
  RnnShape shape;
  Value gate_gradients;
  RnnDirections weights;  // w_ih only
  Value dx;

  static constexpr const char* kName = "rnn_grad_x";
  Values reads() const { return {gate_gradients, weights[0].w_ih, weights[1].w_ih}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return shape.text(); }
  double flops() const { return shape.product_flops(shape.in); }
  double bytes() const { return size_of(reads()) + size_of(writes()); }
};

// dw_ih = gate gradients^T . x and dw_hh = gate gradients^T . h, where h is the state before each
// timestep; db their column sums. Written, not added to.
struct RnnGradW {
  RnnShape shape;
  Value x, y, h0, lengths;  // as in Rnn
  Value gate_gradients;
  RnnDirections grads;  // of the weights

  static constexpr const char* kName = "rnn_grad_w";
  Values reads() const { return {x, y, h0, lengths, gate_gradients}; }
  Values writes() const { return values_of(grads, {}); }
  std::string attributes() const { return shape.text(); }
  double flops() const {
    const double bias = grads[0].b_ih ? 2.0 * double(gates(shape.cell)) * shape.elements() : 0.0;
    return shape.product_flops(shape.in) + shape.product_flops(shape.hidden) + bias;
  }
  double bytes() const { return size_of(reads()) + size_of(writes()); }
};

}  // namespace ridgeline
