#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ridgeline/ops/recurrent.h"

// The recurrences for any number type N: doubles in the reference kernels, a number with an error
// bound in the tests. N has + - *, and Math the functions that Doubled has.
namespace ridgeline::cpu {

struct Doubled {
  using N = double;
  static N constant(double value) { return value; }
  static N sigmoid(N x) {
    return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
  }
  static N tanh(N x) { return std::tanh(x); }
  static N relu(N x) { return x < 0 ? 0.0 : x; }          // keeps NaN
  static N relu_slope(N y) { return y > 0 ? 1.0 : 0.0; }  // at the output
  static N stored(N x) { return x; }                      // the value as stored in memory
  // start + sum of a[i * sa] b[i * sb]
  static N dot(N start, const N* a, int64_t sa, const N* b, int64_t sb, int64_t n) {
    for (int64_t i = 0; i < n; ++i) start = start + a[i * sa] * b[i * sb];
    return start;
  }
};

// Absent operands are null.
template <typename N>
struct RnnPointers {
  const N *w_ih[2] = {}, *w_hh[2] = {}, *b_ih[2] = {}, *b_hh[2] = {};
  const N *x = nullptr, *h0 = nullptr, *c0 = nullptr;
  const int32_t* lengths = nullptr;
  N *y = nullptr, *hT = nullptr, *cT = nullptr, *reserve = nullptr;
  const N *dy = nullptr, *dhT = nullptr, *dcT = nullptr;
  N *gate_gradients = nullptr, *dh0 = nullptr, *dc0 = nullptr;
};

// The indices of the timesteps of one sample in one direction, in the order of the pass.
struct RnnPath {
  const RnnShape& s;
  int64_t b, d, length;

  int64_t time(int64_t step) const { return s.reverse(d) ? length - 1 - step : step; }
  int64_t x(int64_t t) const { return (b * s.steps + t) * s.in; }
  int64_t y(int64_t t) const { return ((b * s.steps + t) * s.directions() + d) * s.hidden; }
  int64_t state() const { return (d * s.batch + b) * s.hidden; }
  int64_t vectors(int64_t t, int64_t count) const { return y(t) * count; }
};

template <typename Math>
class RnnSample {
 public:
  using N = typename Math::N;
  RnnSample(const RnnShape& s, const RnnPointers<N>& p, int64_t b, int64_t d, const Math& math = {})
      : s_(s), p_(p), path_{s, b, d, p.lengths != nullptr ? p.lengths[b] : s.steps}, math_(math) {}

  void forward() {
    const int64_t H = s_.hidden;
    std::vector<N> h = start(p_.h0), c = start(p_.c0), next(h);
    for (int64_t step = 0; step < path_.length; ++step) {
      const int64_t t = path_.time(step);
      for (int64_t j = 0; j < H; ++j) next[size_t(j)] = unit(t, j, h, c);
      h = next;
      for (int64_t j = 0; j < H; ++j) p_.y[path_.y(t) + j] = h[size_t(j)];
    }
    for (int64_t t = path_.length; t < s_.steps; ++t) clear(p_.y, path_.y(t), H);
    const int64_t saved = saved_vectors(s_.cell);
    if (p_.reserve != nullptr) {
      for (int64_t t = path_.length; t < s_.steps; ++t) {
        clear(p_.reserve, path_.vectors(t, saved), saved * H);
      }
    }
    if (p_.hT != nullptr) std::copy(h.begin(), h.end(), p_.hT + path_.state());
    if (p_.cT != nullptr) std::copy(c.begin(), c.end(), p_.cT + path_.state());
  }

  void backward() {
    const int64_t H = s_.hidden, wide = gradient_vectors(s_.cell);
    std::vector<N> dh = start(p_.dhT), dc = start(p_.dcT), direct(dh);
    for (int64_t step = path_.length; step-- > 0;) {
      const int64_t t = path_.time(step);
      N* gradients = p_.gate_gradients + path_.vectors(t, wide);
      for (int64_t j = 0; j < H; ++j) {
        const N total = dh[size_t(j)] + p_.dy[path_.y(t) + j];
        direct[size_t(j)] = unit_grad(step, j, total, dc[size_t(j)], gradients);
      }
      for (int64_t k = 0; k < H; ++k)
        dh[size_t(k)] = through_weights(gradients, k, direct[size_t(k)]);
    }
    for (int64_t t = path_.length; t < s_.steps; ++t) {
      clear(p_.gate_gradients, path_.vectors(t, wide), wide * H);
    }
    if (p_.dh0 != nullptr) std::copy(dh.begin(), dh.end(), p_.dh0 + path_.state());
    if (p_.dc0 != nullptr) std::copy(dc.begin(), dc.end(), p_.dc0 + path_.state());
  }

  // Returns the state with which step `step` began.
  N before(int64_t step, int64_t j) const {
    if (step > 0) return p_.y[path_.y(path_.time(step - 1)) + j];
    return p_.h0 != nullptr ? p_.h0[path_.state() + j] : math_.constant(0);
  }
  const RnnPath& path() const { return path_; }

 private:
  std::vector<N> start(const N* state) const {
    std::vector<N> values(size_t(s_.hidden), math_.constant(0));
    if (state != nullptr) std::copy_n(state + path_.state(), s_.hidden, values.begin());
    return values;
  }
  void clear(N* values, int64_t at, int64_t count) const {
    std::fill_n(values + at, count, math_.constant(0));
  }

  N from_x(int64_t t, int64_t row) const {
    const N start = p_.b_ih[path_.d] != nullptr ? p_.b_ih[path_.d][row] : math_.constant(0);
    return math_.dot(start, p_.x + path_.x(t), 1, p_.w_ih[path_.d] + row * s_.in, 1, s_.in);
  }
  N from_h(const std::vector<N>& h, int64_t row, N start) const {
    if (p_.b_hh[path_.d] != nullptr) start = start + p_.b_hh[path_.d][row];
    return math_.dot(start, h.data(), 1, p_.w_hh[path_.d] + row * s_.hidden, 1, s_.hidden);
  }
  void save(int64_t t, int64_t vector, int64_t j, N value) const {
    if (p_.reserve == nullptr) return;
    p_.reserve[path_.vectors(t, saved_vectors(s_.cell)) + vector * s_.hidden + j] =
        math_.stored(value);
  }
  N saved(int64_t t, int64_t vector, int64_t j) const {
    return p_.reserve[path_.vectors(t, saved_vectors(s_.cell)) + vector * s_.hidden + j];
  }

  // Returns the new h of unit j at time t, and updates c.
  N unit(int64_t t, int64_t j, const std::vector<N>& h, std::vector<N>& c) const {
    const int64_t H = s_.hidden;
    const auto sum = [&](int64_t gate) { return from_h(h, gate * H + j, from_x(t, gate * H + j)); };
    switch (s_.cell) {
      case CellKind::rnn_relu:
        return math_.stored(math_.relu(sum(0)));
      case CellKind::rnn_tanh:
        return math_.stored(math_.tanh(sum(0)));
      case CellKind::gru: {
        const N r = math_.sigmoid(sum(0)), z = math_.sigmoid(sum(1));
        const N hn = from_h(h, 2 * H + j, math_.constant(0));
        const N n = math_.tanh(from_x(t, 2 * H + j) + r * hn);
        save(t, 0, j, r);
        save(t, 1, j, z);
        save(t, 2, j, n);
        save(t, 3, j, hn);
        return math_.stored((math_.constant(1) - z) * n + z * h[size_t(j)]);
      }
      case CellKind::lstm:
        break;
    }
    const N i = math_.sigmoid(sum(0)), f = math_.sigmoid(sum(1));
    const N g = math_.tanh(sum(2)), o = math_.sigmoid(sum(3));
    N& cell = c[size_t(j)];
    cell = math_.stored(f * cell + i * g);
    save(t, 0, j, i);
    save(t, 1, j, f);
    save(t, 2, j, g);
    save(t, 3, j, o);
    save(t, 4, j, cell);
    return math_.stored(o * math_.tanh(cell));
  }

  // Writes the gate gradients of unit j; returns the part of dh that goes directly to the step
  // before, not through the weights. Updates dc for the step before.
  N unit_grad(int64_t step, int64_t j, N dh, N& dc, N* gradients) const {
    const int64_t H = s_.hidden, t = path_.time(step);
    const N one = math_.constant(1);
    const auto put = [&](int64_t vector, N value) {
      gradients[vector * H + j] = math_.stored(value);
    };
    switch (s_.cell) {
      case CellKind::rnn_relu:
        put(0, dh * math_.relu_slope(p_.y[path_.y(t) + j]));
        return math_.constant(0);
      case CellKind::rnn_tanh: {
        const N y = p_.y[path_.y(t) + j];
        put(0, dh * (one - y * y));
        return math_.constant(0);
      }
      case CellKind::gru: {
        const N r = saved(t, 0, j), z = saved(t, 1, j), n = saved(t, 2, j), hn = saved(t, 3, j);
        const N dn = dh * (one - z) * (one - n * n);
        put(0, dn * hn * r * (one - r));
        put(1, dh * (before(step, j) - n) * z * (one - z));
        put(2, dn);
        put(3, dn * r);
        return dh * z;
      }
      case CellKind::lstm:
        break;
    }
    const N i = saved(t, 0, j), f = saved(t, 1, j), g = saved(t, 2, j), o = saved(t, 3, j);
    const N tc = math_.tanh(saved(t, 4, j));
    const N c_before = step > 0           ? saved(path_.time(step - 1), 4, j)
                       : p_.c0 != nullptr ? p_.c0[path_.state() + j]
                                          : math_.constant(0);
    const N total = dc + dh * o * (one - tc * tc);
    put(0, total * g * i * (one - i));
    put(1, total * c_before * f * (one - f));
    put(2, total * i * (one - g * g));
    put(3, dh * tc * o * (one - o));
    dc = math_.stored(total * f);
    return math_.constant(0);
  }

  // start + sum over the gates' rows of gradient * w_hh[row, k]
  N through_weights(const N* gradients, int64_t k, N start) const {
    const int64_t H = s_.hidden;
    for (int64_t gate = 0; gate < gates(s_.cell); ++gate) {
      const int64_t vector = s_.cell == CellKind::gru && gate == 2 ? 3 : gate;
      start =
          math_.dot(start, gradients + vector * H, 1, p_.w_hh[path_.d] + gate * H * H + k, H, H);
    }
    return start;
  }

  const RnnShape& s_;
  const RnnPointers<N>& p_;
  RnnPath path_;
  Math math_;
};

}  // namespace ridgeline::cpu
