#pragma once

// One training step from given weights, with a bound of how far a kernel's sums may be off each
// value: a half that a kernel rounds to may differ from the one here only where the bound reaches
// across a tie. From weights read back after each step this is sharper than any measure of a whole
// run, in which one moved rounding is carried on.

#include "bench/gpu/mlp_train_replay.h"

namespace ridgeline::cuda {

struct Bounded {
  std::vector<double> value, error;
  explicit Bounded(size_t n = 0) : value(n), error(n) {}
};

struct StepBounds {
  std::vector<Bounded> w, b;  // [layer], before they are rounded to the kept type
  double loss = 0, loss_error = 0;
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
    for (int b = 0; l > 0 && b < B; ++b) {
      for (int k = 0; k < in; ++k) {
        double sum = 0, size = 0, error = 0;
        for (int o = 0; o < width; ++o) {
          const double e = g.value[size_t(b) * width + o], w = hw[l][size_t(o) * in + k];
          sum += e * w, size += std::abs(e * w);
          error += g.error[size_t(b) * width + o] * std::abs(w);
        }
        const size_t at = size_t(b) * in + k;
        const double slope = derivative(s.activation, y[l].value[at]);
        // The slope's own error, for curves: at most 2 |dy|.
        const double bent = s.activation == MlpActivation::relu ? 0.0 : 2 * y[l].error[at];
        dy[l].value[at] = sum * slope;
        dy[l].error[at] = (error + sum_error(width) * size) * slope + std::abs(sum) * bent +
                          std::abs(sum * slope) * std::ldexp(1.0, -22);
        round_bounded(s.half, dy[l].value[at], dy[l].error[at]);
      }
    }
    const double keep = 1 - p.rates[t] * p.decay, step = p.rates[t] / B;
    out.w[l] = Bounded(size_t(in) * width), out.b[l] = Bounded(size_t(width));
    const auto put = [&](Bounded& to, size_t at, double old, double sum, double error) {
      to.value[at] = keep * old - step * sum;
      to.error[at] = step * error + (std::abs(old) + step * std::abs(sum)) * std::ldexp(1.0, -22);
    };
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
      for (int k = 0; k < in; ++k) {
        double sum = 0, size = 0, error = 0;
        for (int b = 0; b < B; ++b) {
          const double e = g.value[size_t(b) * width + o], x = y[l].value[size_t(b) * in + k];
          const double e_off = g.error[size_t(b) * width + o],
                       x_off = y[l].error[size_t(b) * in + k];
          sum += e * x, size += std::abs(e * x);
          error += e_off * std::abs(x) + x_off * std::abs(e) + e_off * x_off;
        }
        const size_t at = size_t(o) * in + k;
        put(out.w[l], at, now.w[l][at], sum, error + sum_error(B) * size);
      }
    }
  }
  return out;
}

// What of a step lies outside its bounds, and how sharp those are.
struct StepCheck {
  int64_t values = 0, moved = 0, outside = 0;  // moved: not the half that is nearest here
  double widest = 0;                           // bound, of what the tensor's largest change is
  double beyond = 0;                           // the largest |got - allowed|, likewise
  int layer = -1;                              // of `beyond`
  bool bias = false;

  void join(const StepCheck& other) {
    values += other.values, moved += other.moved, outside += other.outside;
    widest = std::max(widest, other.widest);
    if (other.outside > 0 && other.beyond >= beyond) {
      beyond = other.beyond, layer = other.layer, bias = other.bias;
    }
  }
  void add(const MlpTrainShape& s, const std::vector<float>& old, const Bounded& want,
           const std::vector<float>& got, int at, bool is_bias) {
    double most = 1e-30;
    for (size_t i = 0; i < old.size(); ++i) most = std::max(most, std::abs(want.value[i] - old[i]));
    const auto kept = [&](double v) { return s.masters ? v : double(round_half(s.half, v)); };
    for (size_t i = 0; i < old.size(); ++i) {
      ++values;
      const double low = kept(want.value[i] - want.error[i]),
                   high = kept(want.value[i] + want.error[i]);
      if (!s.masters) moved += got[i] != float(kept(want.value[i]));
      widest = std::max(widest, want.error[i] / most);
      const double off = got[i] < low ? low - got[i] : got[i] > high ? got[i] - high : 0.0;
      if (off <= 0 && !std::isnan(got[i])) continue;
      ++outside;
      if (std::isnan(got[i]) || off / most > beyond) {
        beyond = std::isnan(got[i]) ? INFINITY : off / most, layer = at, bias = is_bias;
      }
    }
  }
};

inline StepCheck check_step(const Problem& p, const Weights& before, const Weights& after,
                            double loss, size_t t) {
  const StepBounds want = step_bounds(p, before, t);
  StepCheck check;
  for (int l = 0; l < p.shape.layers; ++l) {
    check.add(p.shape, before.w[l], want.w[l], after.w[l], l, false);
    check.add(p.shape, before.b[l], want.b[l], after.b[l], l, true);
  }
  if (!(std::abs(loss - want.loss) <= want.loss_error)) ++check.outside, check.layer = 99;
  return check;
}

}  // namespace ridgeline::cuda
