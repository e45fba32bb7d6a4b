#pragma once

// One training step from given weights, with a bound of how far a kernel's sums may be off each
// value: a half that a kernel rounds to may differ from the one here only where the bound reaches
// across a tie. From weights read back after each step this is sharper than any measure of a whole
// run, in which one moved rounding is carried on: of 8,000 draws of a net 33-1024-16-5 (tanh,
// bf16), two steps with sums in fp32 and in fp64 leave 13 whose changes differ by 4 to 5 % of their
// size.

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

// Products of halves are exact in fp32; tensor cores add 16 at a time and cut off what lies beyond
// fp32, after which parts are added: `count` terms.
inline double sum_error(int count) { return (count / 16 + 8) * std::ldexp(1.0, -23); }

inline void round_bounded(MlpHalf half, double& value, double& error) {
  const double here = round_half(half, value), low = round_half(half, value - error),
               high = round_half(half, value + error);
  value = here, error = std::max(high - here, here - low);
}

inline StepBounds step_bounds(const Problem& p, const Weights& now, size_t t) {
  const MlpTrainShape& s = p.shape;
  const int B = s.batch, L = s.layers, C = s.sizes[L];
  std::vector<Bounded> y, dy(size_t(L) + 1);
  std::vector<std::vector<float>> hw = now.w;
  for (auto& layer : hw) {
    for (auto& v : layer) v = round_half(s.half, v);
  }
  y.emplace_back(size_t(B) * s.sizes[0]);
  std::vector<int> label(static_cast<size_t>(B));
  for (int b = 0; b < B; ++b) {
    const int row = p.data.order[p.first + int64_t(t) * B + b];
    label[b] = p.data.labels[row];
    for (int k = 0; k < s.sizes[0]; ++k) {
      const float byte = p.data.images[size_t(row) * p.data.features + k];
      y[0].value[size_t(b) * s.sizes[0] + k] = round_half(s.half, std::fma(byte, p.scale, p.shift));
    }
  }
  for (int l = 0; l < L; ++l) {
    const int in = s.sizes[l], width = s.sizes[l + 1];
    y.emplace_back(size_t(B) * width);
    for (int b = 0; b < B; ++b) {
      for (int o = 0; o < width; ++o) {
        double sum = now.b[l][o], size = std::abs(sum), error = 0;
        for (int k = 0; k < in; ++k) {
          const double x = y[l].value[size_t(b) * in + k], w = hw[l][size_t(o) * in + k];
          sum += x * w, size += std::abs(x * w);
          error += y[l].error[size_t(b) * in + k] * std::abs(w);
        }
        error += sum_error(in) * size;
        const size_t at = size_t(b) * width + o;
        y[l + 1].value[at] = sum, y[l + 1].error[at] = error;
        if (l + 1 == L) continue;
        // No curve here is steeper than 1; tanh and exp are approximations in the kernels.
        y[l + 1].value[at] = activate(s.activation, sum);
        if (s.activation != MlpActivation::relu) y[l + 1].error[at] += std::ldexp(1.0, -20);
        round_bounded(s.half, y[l + 1].value[at], y[l + 1].error[at]);
      }
    }
  }
  StepBounds out;
  dy[L] = Bounded(size_t(B) * C);
  for (int b = 0; b < B; ++b) {
    const double* z = &y[L].value[size_t(b) * C];
    const double off =
        *std::max_element(&y[L].error[size_t(b) * C], &y[L].error[size_t(b) * C] + C);
    const double top = *std::max_element(z, z + C);
    double sum = 0;
    for (int c = 0; c < C; ++c) sum += std::exp(z[c] - top);
    out.loss += (std::log(sum) + top - z[label[b]]) / B;
    out.loss_error += (2 * off + std::ldexp(1.0, -18)) / B;
    double rival = -INFINITY;
    for (int c = 0; c < C; ++c) rival = c == label[b] ? rival : std::max(rival, z[c]);
    out.surely_correct += z[label[b]] - rival > 2 * off;
    out.maybe_correct += z[label[b]] - rival >= -2 * off;
    for (int c = 0; c < C; ++c) {
      const double power = std::exp(z[c] - top) / sum;
      const size_t at = size_t(b) * C + c;
      dy[L].value[at] = power - (c == label[b]);
      dy[L].error[at] = power * (2 * off + (4 + top - z[c]) * std::ldexp(1.0, -21));
      round_bounded(s.half, dy[L].value[at], dy[L].error[at]);
    }
  }
  out.w.resize(size_t(L)), out.b.resize(size_t(L));
  for (int l = L - 1; l >= 0; --l) {
    const int in = s.sizes[l], width = s.sizes[l + 1];
    const Bounded& g = dy[l + 1];
    if (l > 0) dy[l] = Bounded(size_t(B) * in);
    std::vector<double> sum, size, error;  // [in]
    const auto clear = [&] {
      for (auto* v : {&sum, &size, &error}) v->assign(size_t(in), 0.0);
    };
    for (int b = 0; l > 0 && b < B; ++b) {
      clear();
      for (int o = 0; o < width; ++o) {
        const double e = g.value[size_t(b) * width + o], e_off = g.error[size_t(b) * width + o];
        const float* w = &hw[l][size_t(o) * in];
        for (int k = 0; k < in; ++k) {
          sum[k] += e * w[k], size[k] += std::abs(e * w[k]), error[k] += e_off * std::abs(w[k]);
        }
      }
      for (int k = 0; k < in; ++k) {
        const size_t at = size_t(b) * in + k;
        const double slope = derivative(s.activation, y[l].value[at]);
        // The slope's own error, for curves: at most 2 |dy|.
        const double bent = s.activation == MlpActivation::relu ? 0.0 : 2 * y[l].error[at];
        dy[l].value[at] = sum[k] * slope;
        dy[l].error[at] = (error[k] + sum_error(width) * size[k]) * slope +
                          std::abs(sum[k]) * bent + std::abs(sum[k] * slope) * std::ldexp(1.0, -22);
        round_bounded(s.half, dy[l].value[at], dy[l].error[at]);
      }
    }
    const double keep = 1 - p.rates[t] * p.decay, step = p.rates[t] / B;
    out.w[l] = Bounded(size_t(in) * width), out.b[l] = Bounded(size_t(width));
    for (int o = 0; o < width; ++o) {
      double bias = 0, bias_error = 0, bias_size = 0;
      for (int b = 0; b < B; ++b) {
        const size_t at = size_t(b) * width + o;
        bias += g.value[at], bias_size += std::abs(g.value[at]), bias_error += g.error[at];
      }
      const double old = now.b[l][o];
      out.b[l].value[o] = old - step * bias;
      out.b[l].error[o] = step * (bias_error + sum_error(B) * bias_size) +
                          (std::abs(old) + step * std::abs(bias)) * std::ldexp(1.0, -22);
      clear();
      for (int b = 0; b < B; ++b) {
        const double e = g.value[size_t(b) * width + o], e_off = g.error[size_t(b) * width + o];
        const double *x = &y[l].value[size_t(b) * in], *x_off = &y[l].error[size_t(b) * in];
        for (int k = 0; k < in; ++k) {
          sum[k] += e * x[k], size[k] += std::abs(e * x[k]);
          error[k] += e_off * std::abs(x[k]) + x_off[k] * std::abs(e) + e_off * x_off[k];
        }
      }
      for (int k = 0; k < in; ++k) {
        const size_t at = size_t(o) * in + k;
        const double now_w = now.w[l][at];
        out.w[l].value[at] = keep * now_w - step * sum[k];
        out.w[l].error[at] = step * (error[k] + sum_error(B) * size[k]) +
                             (std::abs(now_w) + step * std::abs(sum[k])) * std::ldexp(1.0, -22);
      }
    }
  }
  return out;
}

// What of some steps lies outside its bounds, and how sharp those are.
struct StepCheck {
  int steps = 0;
  int64_t values = 0, moved = 0, outside = 0;  // moved: not the half that is nearest here
  double widest = 0;                           // bound, of what the tensor's largest change is
  double beyond = 0;                           // the largest |got - allowed|, likewise
  int layer = -1;                              // of `beyond`
  bool bias = false;
  bool loss = false;          // that or the count of hits is outside, too
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

  // Curves carry a moved rounding on through all layers of a step, so that the bounds of a deep net
  // become wide. What moves is rare, however, and what one term less does is not: sums in fp32
  // drift by up to 0.0033 (0.0014 with masters) in one step of thousands and by a tenth of that on
  // average; one term left out of one layer by 0.006 at least in every step (replay_test).
  static double drift_bound(const MlpTrainShape& s) {
    if (s.activation == MlpActivation::relu) return INFINITY;
    return s.masters ? 0.003 : 0.004;
  }
};

inline StepCheck check_step(const Problem& p, const Weights& before, const Weights& after,
                            double loss, int correct, size_t t) {
  const StepBounds want = step_bounds(p, before, t);
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
