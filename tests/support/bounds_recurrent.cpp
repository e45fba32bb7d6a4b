// Bounds of recurrent layers: the recurrence itself in numbers that carry their own bounds, with a
// rounding to the value's type wherever a kernel may keep a state in memory between steps.
#include "ridgeline/cpu/reference/recurrent-inl.h"
#include "tests/support/bounds_rules.h"

namespace ridgeline::test {
namespace {

struct Bounded {
  using N = Approx;
  double u = 0;        // of the arithmetic
  double factor = 0;   // of a product's factors
  double storing = 0;  // of a store
  double least = 0;    // below which a store may lose everything

  N constant(double value) const { return {value, 0, u}; }
  // The natural scale of a gate is 1: an error that is small compared with 1 has a small effect.
  N sigmoid(N x) const {
    const double y = cpu::Doubled::sigmoid(x.value);
    return {y, y * (1 - y) * x.error + 0.05 * x.error * x.error + kUlps * u, u};
  }
  N tanh(N x) const {
    const double y = std::tanh(x.value);
    const double off = std::min(x.error, (1 - y * y) * x.error + 0.4 * x.error * x.error);
    return {y, off + kUlps * u, u};
  }
  N relu(N x) const { return {std::max(0.0, x.value), x.value <= -x.error ? 0.0 : x.error, u}; }
  N relu_slope(N y) const {
    return {y.value > 0 ? 1.0 : 0.0, y.error > 0 && std::abs(y.value) <= y.error ? 1.0 : 0.0, u};
  }
  N stored(N x) const {
    const double size = std::abs(x.value) + x.error;
    return {x.value, size == 0 ? 0.0 : x.error + storing * size + least, u};
  }
  // A sum in any order, including `start`.
  N dot(N start, const N* a, int64_t sa, const N* b, int64_t sb, int64_t n) const {
    double value = start.value, size = std::abs(start.value), spread = start.error;
    for (int64_t i = 0; i < n; ++i) {
      const N &p = a[i * sa], &q = b[i * sb];
      const double pm = std::abs(p.value), qm = std::abs(q.value);
      value += p.value * q.value;
      size += pm * qm;
      spread += pm * q.error + qm * p.error + p.error * q.error;
    }
    return {value, spread + (double(n + 2) * u + factor) * (size + spread), u};
  }
};

using Numbers = std::vector<Approx>;

// An operand that an op reads, with its bounds; or memory for one that it writes.
class Operand {
 public:
  Operand(const Rules& rules, const Value& value, bool read) : rules_(rules), value_(value) {
    if (!value) return;
    numbers_.resize(size_t(value.shape.numel()));
    for (int64_t i = 0; read && i < value.shape.numel(); ++i) {
      numbers_[size_t(i)] = rules.element(value, i);
    }
  }
  Approx* data() { return value_ ? numbers_.data() : nullptr; }
  // Stores the bounds relative to the oracle's values. `rounded`: the numbers are already rounded.
  void store(bool rounded) {
    if (!value_) return;
    for (int64_t i = 0; i < value_.shape.numel(); ++i) {
      const Approx& number = numbers_[size_t(i)];
      if (rounded) {
        rules_.err(value_)[size_t(i)] = number.error;
      } else {
        rules_.store(value_, i, number.error);
      }
    }
  }

 private:
  const Rules& rules_;
  Value value_;
  Numbers numbers_;
};

Bounded math_of(const Rules& rules, const Value& value) {
  return {rules.u(value), factor_roundoff(rules.program.precision), unit_roundoff(value.dtype),
          smallest_normal(value.dtype)};
}

struct DirectionOperands {
  Operand w_ih, w_hh, b_ih, b_hh;
  DirectionOperands(const Rules& r, const RnnWeights& w)
      : w_ih(r, w.w_ih, true),
        w_hh(r, w.w_hh, true),
        b_ih(r, w.b_ih, true),
        b_hh(r, w.b_hh, true) {}
  void point(cpu::RnnPointers<Approx>& p, size_t d) {
    p.w_ih[d] = w_ih.data();
    p.w_hh[d] = w_hh.data();
    p.b_ih[d] = b_ih.data();
    p.b_hh[d] = b_hh.data();
  }
};

const int32_t* lengths_of(const Rules& rules, const Value& value) {
  return value ? rules.values[value].as<const int32_t>() : nullptr;
}

}  // namespace

void Rules::operator()(const Rnn& op) const {
  DirectionOperands first(*this, op.weights[0]), second(*this, op.weights[1]);
  Operand x(*this, op.x, true), h0(*this, op.h0, true), c0(*this, op.c0, true);
  Operand y(*this, op.y, false), hT(*this, op.hT, false), cT(*this, op.cT, false);
  Operand reserve(*this, op.reserve, false);
  cpu::RnnPointers<Approx> p;
  first.point(p, 0);
  second.point(p, 1);
  p.lengths = lengths_of(*this, op.lengths);
  p.x = x.data();
  p.h0 = h0.data();
  p.c0 = c0.data();
  p.y = y.data();
  p.hT = hT.data();
  p.cT = cT.data();
  p.reserve = reserve.data();
  for (int64_t d = 0; d < op.shape.directions(); ++d) {
    for (int64_t b = 0; b < op.shape.batch; ++b) {
      cpu::RnnSample<Bounded>(op.shape, p, b, d, math_of(*this, op.y)).forward();
    }
  }
  for (Operand* each : {&y, &hT, &cT, &reserve}) each->store(true);
}

void Rules::operator()(const RnnGrad& op) const {
  DirectionOperands first(*this, op.weights[0]), second(*this, op.weights[1]);
  Operand h0(*this, op.h0, true), c0(*this, op.c0, true), y(*this, op.y, true);
  Operand reserve(*this, op.reserve, true), dy(*this, op.dy, true);
  Operand dhT(*this, op.dhT, true), dcT(*this, op.dcT, true);
  Operand gradients(*this, op.gate_gradients, false);
  Operand dh0(*this, op.dh0, false), dc0(*this, op.dc0, false);
  cpu::RnnPointers<Approx> p;
  first.point(p, 0);
  second.point(p, 1);
  p.lengths = lengths_of(*this, op.lengths);
  p.h0 = h0.data();
  p.c0 = c0.data();
  p.y = y.data();
  p.reserve = reserve.data();
  p.dy = dy.data();
  p.dhT = dhT.data();
  p.dcT = dcT.data();
  p.gate_gradients = gradients.data();
  p.dh0 = dh0.data();
  p.dc0 = dc0.data();
  for (int64_t d = 0; d < op.shape.directions(); ++d) {
    for (int64_t b = 0; b < op.shape.batch; ++b) {
      cpu::RnnSample<Bounded>(op.shape, p, b, d, math_of(*this, op.dy)).backward();
    }
  }
  gradients.store(true);
  dh0.store(false);
  dc0.store(true);
}

void Rules::operator()(const RnnGradX& op) const {
  const RnnShape& s = op.shape;
  const int64_t D = s.directions(), wide = gradient_vectors(s.cell) * s.hidden;
  for (int64_t i = 0; i < s.rows() * s.in; ++i) {
    double error = 0, value = 0;
    for (int64_t d = 0; d < D; ++d) {
      const Value& w = op.weights[size_t(d)].w_ih;
      const int64_t from = (i / s.in * D + d) * wide;
      error = product(op.gate_gradients, from, 1, w, i % s.in, s.in, s.gate_rows(), value, error);
      for (int64_t row = 0; row < s.gate_rows(); ++row) {
        value += val(op.gate_gradients)[from + row] * val(w)[row * s.in + i % s.in];
      }
    }
    store(op.dx, i, error);
  }
}

void Rules::operator()(const RnnGradW& op) const {
  const RnnShape& s = op.shape;
  const int64_t D = s.directions(), H = s.hidden, wide = gradient_vectors(s.cell) * H;
  Operand x(*this, op.x, true), y(*this, op.y, true), h0(*this, op.h0, true);
  Operand g(*this, op.gate_gradients, true);
  cpu::RnnPointers<Approx> p;
  p.y = y.data();
  p.h0 = h0.data();
  p.lengths = lengths_of(*this, op.lengths);
  const Bounded math = math_of(*this, op.gate_gradients);
  const Approx one = math.constant(1);
  for (int64_t d = 0; d < D; ++d) {
    // Every timestep of every sample: its gradients, its x and the state it began with.
    std::vector<const Approx*> gradients, inputs;
    Numbers before;
    for (int64_t b = 0; b < s.batch; ++b) {
      const cpu::RnnSample<Bounded> sample(s, p, b, d, math);
      for (int64_t step = 0; step < sample.path().length; ++step) {
        const int64_t r = b * s.steps + sample.path().time(step);
        gradients.push_back(g.data() + (r * D + d) * wide);
        inputs.push_back(x.data() + r * s.in);
        for (int64_t k = 0; k < H; ++k) before.push_back(sample.before(step, k));
      }
    }
    const int64_t count = int64_t(gradients.size());
    Numbers of_x(gradients.size()), of_h(gradients.size()), column(gradients.size());
    const RnnWeights& grads = op.grads[size_t(d)];
    for (int64_t row = 0; row < s.gate_rows(); ++row) {
      const bool gru_n = s.cell == CellKind::gru && row >= 2 * H;
      for (size_t i = 0; i < gradients.size(); ++i) {
        of_x[i] = gradients[i][row];
        of_h[i] = gradients[i][gru_n ? row + H : row];
      }
      const auto sum = [&](const Numbers& a, const Approx* b, int64_t stride) {
        return math.dot(math.constant(0), a.data(), 1, b, stride, count).error;
      };
      for (int64_t i = 0; i < s.in; ++i) {
        for (size_t r = 0; r < column.size(); ++r) column[r] = inputs[r][i];
        store(grads.w_ih, row * s.in + i, sum(of_x, column.data(), 1));
      }
      for (int64_t k = 0; k < H; ++k)
        store(grads.w_hh, row * H + k, sum(of_h, before.data() + k, H));
      if (!grads.b_ih) continue;
      store(grads.b_ih, row, sum(of_x, &one, 0));
      store(grads.b_hh, row, sum(of_h, &one, 0));
    }
  }
}

void Rules::operator()(const Embedding& op) const {
  const auto* token = values[op.token].as<int32_t>();
  for (int64_t i = 0; i < op.count() * op.width(); ++i) {
    err(op.y)[size_t(i)] = e(op.w, token[i / op.width()] * op.width() + i % op.width());
  }
}

void Rules::operator()(const EmbeddingGrad& op) const {
  const auto* token = values[op.token].as<int32_t>();
  const int64_t width = op.width();
  std::vector<double> size(err(op.dw).size()), spread(size.size()), count(size.size());
  for (int64_t i = 0; i < op.count() * width; ++i) {
    const size_t at = size_t(token[i / width] * width + i % width);
    size[at] += std::abs(val(op.dy)[i]);
    spread[at] += e(op.dy, i);
    count[at] += 1;
  }
  for (size_t i = 0; i < size.size(); ++i) {
    store(op.dw, int64_t(i), spread[i] + count[i] * u(op.dy) * (size[i] + spread[i]));
  }
}

void Rules::operator()(const SelectTimestep& op) const {
  const int32_t* lengths = lengths_of(*this, op.lengths);
  for (int64_t i = 0; i < op.y.shape.numel(); ++i) {
    const int64_t b = i / op.features(), length = lengths != nullptr ? lengths[b] : op.steps;
    const int64_t t = op.at >= 0 ? op.at : std::max<int64_t>(0, length + op.at);
    err(op.y)[size_t(i)] = e(op.x, (b * op.steps + t) * op.features() + i % op.features());
  }
}

void Rules::operator()(const SelectTimestepGrad& op) const {
  const int32_t* lengths = lengths_of(*this, op.lengths);
  std::ranges::fill(err(op.dx), 0.0);
  for (int64_t i = 0; i < op.dy.shape.numel(); ++i) {
    const int64_t b = i / op.features(), length = lengths != nullptr ? lengths[b] : op.steps;
    const int64_t t = op.at >= 0 ? op.at : std::max<int64_t>(0, length + op.at);
    err(op.dx)[size_t((b * op.steps + t) * op.features() + i % op.features())] = e(op.dy, i);
  }
}

void Rules::operator()(const Copy& op) const { err(op.to) = err(op.from); }

}  // namespace ridgeline::test
