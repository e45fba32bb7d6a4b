#pragma once

// One training step from given weights, with a bound for how far a kernel's sums may deviate from
// each value: a half that a kernel rounds to may differ from the one here only if the bound reaches
// across a tie. With weights read back after each step, this is sharper than any measure of a whole
// run, in which one different rounding is carried on: in 8,000 draws of a network 33-1024-16-5
// (tanh, bf16), two steps with sums in fp32 and in fp64 differ in 13 by 4 to 5 % of the size of
// their changes.

#include "bench/gpu/mlp_train_replay.h"

namespace ridgeline::cuda {

struct Bounded {
  std::vector<double> value, error;
  explicit Bounded(size_t n = 0) : value(n), error(n) {}
};

struct StepBounds {
  std::vector<Bounded> w, b;  // [layer], before they are rounded to the kept type
  double loss = 0, loss_error = 0;
  int surely_correct = 0, maybe_correct = 0;  // samples
};

// Products of halves are exact in fp32. Tensor cores add 16 at a time and truncate to fp32, then
// the parts are added: `count` terms.
inline double sum_error(int count) { return (count / 16 + 8) * std::ldexp(1.0, -23); }

inline void round_bounded(DType half, double& value, double& error) {
  const double here = round_half(half, value), low = round_half(half, value - error),
               high = round_half(half, value + error);
  value = here, error = std::max(high - here, here - low);
}

// One step, pass by pass.
class BoundedStep {
 public:
  BoundedStep(const Problem& p, const Weights& now, size_t t)
      : s_(p.shape),
        p_(p),
        now_(now),
        t_(t),
        hw_(now.w),
        y_(size_t(s_.layers) + 1),
        dy_(size_t(s_.layers) + 1) {
    for (auto& layer : hw_) {
      for (auto& v : layer) v = round_half(s_.half, v);
    }
    const Batch batch = batch_of(p, t);
    label_ = batch.labels;
    y_[0].value.assign(batch.inputs.begin(), batch.inputs.end());
    y_[0].error.resize(batch.inputs.size());
    out_.w.resize(size_t(s_.layers)), out_.b.resize(size_t(s_.layers));
  }

  StepBounds run() {
    for (int l = 0; l < s_.layers; ++l) forward(l);
    classify();
    for (int l = s_.layers - 1; l >= 0; --l) {
      if (l > 0) go_back(l);
      update(l);
    }
    return std::move(out_);
  }

 private:
  void forward(int l) {
    const int B = s_.batch, in = s_.sizes[l], width = s_.sizes[l + 1];
    Bounded& to = y_[l + 1] = Bounded(size_t(B) * width);
    for (int b = 0; b < B; ++b) {
      for (int o = 0; o < width; ++o) {
        double sum = now_.b[l][o], size = std::abs(sum), error = 0;
        for (int k = 0; k < in; ++k) {
          const double x = y_[l].value[size_t(b) * in + k], w = hw_[l][size_t(o) * in + k];
          sum += x * w, size += std::abs(x * w);
          error += y_[l].error[size_t(b) * in + k] * std::abs(w);
        }
        error += sum_error(in) * size;
        const size_t at = size_t(b) * width + o;
        to.value[at] = sum, to.error[at] = error;
        if (l + 1 == s_.layers) continue;
        // No activation here has a slope above 1; tanh and exp are approximations in the kernels.
        to.value[at] = activate(s_.activation, sum);
        if (s_.activation != ActivationFn::relu) to.error[at] += std::ldexp(1.0, -20);
        round_bounded(s_.half, to.value[at], to.error[at]);
      }
    }
  }

  // The loss, and dy of the last layer.
  void classify() {
    const int B = s_.batch, L = s_.layers, C = s_.sizes[L];
    dy_[L] = Bounded(size_t(B) * C);
    for (int b = 0; b < B; ++b) {
      const double* z = &y_[L].value[size_t(b) * C];
      const double off =
          *std::max_element(&y_[L].error[size_t(b) * C], &y_[L].error[size_t(b) * C] + C);
      const double top = *std::max_element(z, z + C);
      double sum = 0;
      for (int c = 0; c < C; ++c) sum += std::exp(z[c] - top);
      out_.loss += (std::log(sum) + top - z[label_[b]]) / B;
      out_.loss_error += (2 * off + std::ldexp(1.0, -18)) / B;
      double rival = -INFINITY;
      for (int c = 0; c < C; ++c) rival = c == label_[b] ? rival : std::max(rival, z[c]);
      out_.surely_correct += z[label_[b]] - rival > 2 * off;
      out_.maybe_correct += z[label_[b]] - rival >= -2 * off;
      for (int c = 0; c < C; ++c) {
        const double power = std::exp(z[c] - top) / sum;
        const size_t at = size_t(b) * C + c;
        dy_[L].value[at] = power - (c == label_[b]);
        dy_[L].error[at] = power * (2 * off + (4 + top - z[c]) * std::ldexp(1.0, -21));
        round_bounded(s_.half, dy_[L].value[at], dy_[L].error[at]);
      }
    }
  }

  // dy of the layer below layer `l`.
  void go_back(int l) {
    const int B = s_.batch, in = s_.sizes[l], width = s_.sizes[l + 1];
    const Bounded& g = dy_[l + 1];
    Bounded& to = dy_[l] = Bounded(size_t(B) * in);
    for (int b = 0; b < B; ++b) {
      Sums sums(in);
      for (int o = 0; o < width; ++o) {
        const double e = g.value[size_t(b) * width + o], e_off = g.error[size_t(b) * width + o];
        const float* w = &hw_[l][size_t(o) * in];
        for (int k = 0; k < in; ++k) sums.add(k, e * w[k], e_off * std::abs(w[k]));
      }
      for (int k = 0; k < in; ++k) {
        const size_t at = size_t(b) * in + k;
        const double sum = sums.value[k], slope = derivative(s_.activation, y_[l].value[at]);
        // The error of the slope itself, for smooth activations: at most 2 |dy|.
        const double bent = s_.activation == ActivationFn::relu ? 0.0 : 2 * y_[l].error[at];
        to.value[at] = sum * slope;
        to.error[at] = (sums.error[k] + sum_error(width) * sums.size[k]) * slope +
                       std::abs(sum) * bent + std::abs(sum * slope) * std::ldexp(1.0, -22);
        round_bounded(s_.half, to.value[at], to.error[at]);
      }
    }
  }

  void update(int l) {
    const int B = s_.batch, in = s_.sizes[l], width = s_.sizes[l + 1];
    const Bounded& g = dy_[l + 1];
    const double keep = 1 - p_.rates[t_] * p_.decay, step = p_.rates[t_] / B;
    // old * keep - step * the sum of B terms.
    const auto updated = [&](Bounded& to, size_t at, double old, double kept, const Sums& sums,
                             int k) {
      to.value[at] = kept * old - step * sums.value[k];
      to.error[at] = step * (sums.error[k] + sum_error(B) * sums.size[k]) +
                     (std::abs(old) + step * std::abs(sums.value[k])) * std::ldexp(1.0, -22);
    };
    out_.w[l] = Bounded(size_t(in) * width), out_.b[l] = Bounded(size_t(width));
    for (int o = 0; o < width; ++o) {
      Sums bias(1), sums(in);
      for (int b = 0; b < B; ++b) {
        const double e = g.value[size_t(b) * width + o], e_off = g.error[size_t(b) * width + o];
        const double *x = &y_[l].value[size_t(b) * in], *x_off = &y_[l].error[size_t(b) * in];
        bias.add(0, e, e_off);
        for (int k = 0; k < in; ++k) {
          sums.add(k, e * x[k], e_off * std::abs(x[k]) + x_off[k] * std::abs(e) + e_off * x_off[k]);
        }
      }
      updated(out_.b[l], size_t(o), now_.b[l][o], 1, bias, 0);
      for (int k = 0; k < in; ++k) {
        const size_t at = size_t(o) * in + k;
        updated(out_.w[l], at, now_.w[l][at], keep, sums, k);
      }
    }
  }

  // Several sums at once: their values, the effect of the terms' errors, and the magnitude of the
  // terms.
  struct Sums {
    std::vector<double> value, error, size;
    explicit Sums(int n) : value(size_t(n)), error(size_t(n)), size(size_t(n)) {}
    void add(int k, double term, double off) {
      value[k] += term, size[k] += std::abs(term), error[k] += off;
    }
  };

  const MlpTrainShape& s_;
  const Problem& p_;
  const Weights& now_;
  size_t t_;
  std::vector<std::vector<float>> hw_;  // the weights as halves
  std::vector<int> label_;
  std::vector<Bounded> y_, dy_;  // [layer]; the first are the inputs'
  StepBounds out_;
};

// Which values of some steps are outside their bounds, and how sharp the bounds are.
struct StepCheck {
  int steps = 0;
  int64_t values = 0, moved = 0, outside = 0;  // moved: not the half that is nearest here
  double widest = 0;  // the largest bound, relative to the tensor's largest change
  double beyond = 0;  // the largest |got - allowed|, relative likewise
  int layer = -1;     // of `beyond`
  bool bias = false;
  bool loss = false;          // the loss or the number of correct predictions is outside, too
  std::vector<double> drift;  // [layer], over steps: sum of |got - want| / |change|, weights

  void join(const StepCheck& other) {
    steps += other.steps, values += other.values, moved += other.moved, outside += other.outside;
    widest = std::max(widest, other.widest), loss |= other.loss;
    drift.resize(other.drift.size());
    for (size_t l = 0; l < drift.size(); ++l) drift[l] += other.drift[l];
    if (other.outside > 0 && other.beyond >= beyond) {
      beyond = other.beyond, layer = other.layer, bias = other.bias;
    }
  }
  void add(const MlpTrainShape& s, const std::vector<float>& old, const Bounded& want,
           const std::vector<float>& got, int at, bool is_bias) {
    double most = 1e-30, changed = 1e-30, apart = 0;
    for (size_t i = 0; i < old.size(); ++i) most = std::max(most, std::abs(want.value[i] - old[i]));
    const auto kept = [&](double v) { return s.masters ? v : double(round_half(s.half, v)); };
    for (size_t i = 0; i < old.size(); ++i) {
      ++values;
      const double here = kept(want.value[i]), low = kept(want.value[i] - want.error[i]),
                   high = kept(want.value[i] + want.error[i]);
      if (!s.masters) moved += got[i] != float(here);
      widest = std::max(widest, want.error[i] / most);
      changed += std::abs(here - old[i]), apart += std::abs(got[i] - here);
      const double off = got[i] < low ? low - got[i] : got[i] > high ? got[i] - high : 0.0;
      if (off <= 0 && !std::isnan(got[i])) continue;
      ++outside;
      if (std::isnan(got[i]) || off / most > beyond) {
        beyond = std::isnan(got[i]) ? INFINITY : off / most, layer = at, bias = is_bias;
      }
    }
    if (!is_bias) drift.push_back(apart / changed);
  }

  double worst_drift() const {
    return steps == 0 ? 0.0 : *std::max_element(drift.begin(), drift.end()) / steps;
  }
  bool passes(const MlpTrainShape& s) const {
    return outside == 0 && worst_drift() <= drift_bound(s);
  }

  // In a deep network a different rounding is carried through all layers of a step, so bounds
  // become wide. Such roundings are rare, however, while the effect of a missing term is not: sums
  // in fp32 drift by up to 0.0033 (0.0014 with masters) in one step of thousands and by a tenth of
  // that on average; one term left out of one layer causes at least 0.006 in every step
  // (replay_test).
  static double drift_bound(const MlpTrainShape& s) {
    if (s.activation == ActivationFn::relu) return INFINITY;
    return s.masters ? 0.003 : 0.004;
  }
};

inline StepCheck check_step(const Problem& p, const Weights& before, const Weights& after,
                            double loss, int correct, size_t t) {
  const StepBounds want = BoundedStep(p, before, t).run();
  StepCheck check;
  check.steps = 1;
  for (int l = 0; l < p.shape.layers; ++l) {
    check.add(p.shape, before.w[l], want.w[l], after.w[l], l, false);
    check.add(p.shape, before.b[l], want.b[l], after.b[l], l, true);
  }
  const bool counted = correct >= want.surely_correct && correct <= want.maybe_correct;
  if (!counted || !(std::abs(loss - want.loss) <= want.loss_error)) {
    ++check.outside, check.loss = true;
  }
  return check;
}

}  // namespace ridgeline::cuda
