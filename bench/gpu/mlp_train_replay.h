#pragma once

// Training steps on the host with the roundings of the whole-step kernels, and faults that can be
// put into them. This is plain C++: the bounds of mlp_train_steps.h and their controls are checked
// without a GPU (tests/cuda/mlp_train_replay_test.cpp).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "ridgeline/core/half.h"
#include "ridgeline/cuda/mlp_train/mlp_train.h"

namespace ridgeline::cuda {

inline float round_half(DType half, double v) {
  return half == DType::fp16 ? float(Fp16(float(v))) : float(Bf16(float(v)));
}

// Images that can be learnt: a pattern per class, and noise.
struct Data {
  int features, classes, samples;
  std::vector<uint8_t> images;
  std::vector<int32_t> labels, order;
};

inline Data make_data(int features, int classes, int samples, int order_length, unsigned seed) {
  Data d{features, classes, samples, {}, {}, {}};
  std::mt19937 rng(seed);
  std::vector<uint8_t> pattern(size_t(features) * classes);
  for (auto& p : pattern) p = rng() & 0xff;
  d.images.resize(size_t(features) * samples), d.labels.resize(samples),
      d.order.resize(order_length);
  for (int r = 0; r < samples; ++r) {
    const int c = d.labels[r] = int(rng() % classes);
    for (int k = 0; k < features; ++k) {
      d.images[size_t(r) * features + k] = (pattern[size_t(c) * features + k] + (rng() & 0xff)) / 2;
    }
  }
  for (auto& o : d.order) o = int32_t(rng() % samples);
  return d;
}

struct Weights {
  std::vector<std::vector<float>> w, b;  // [layer]
};

// Uniform weights with deviation `scale` * sqrt(2 / in), and biases within 0.1. With `gates` (for
// relu) the biases of hidden layers are +-`gates` instead, half of them each: far enough for every
// unit to be active or inactive for all samples, so that no rounding decides it.
inline Weights make_weights(const MlpTrainShape& s, unsigned seed, double gates = 0,
                            double scale = 1) {
  Weights out;
  std::minstd_rand rng(seed);  // millions of weights: speed counts
  for (int l = 0; l < s.layers; ++l) {
    const bool gated = gates > 0 && l + 1 < s.layers;
    const double limit = (gated ? scale : 1.0) * std::sqrt(6.0 / s.sizes[l]);
    const auto kept = [&](double v) { return s.masters ? float(v) : round_half(s.half, v); };
    const auto draw = [&](double most) {
      return kept(float(most * (double(rng()) / double(1u << 30) - 1.0)));
    };
    std::vector<float> w(size_t(s.sizes[l]) * s.sizes[l + 1]), b(s.sizes[l + 1]);
    for (auto& x : w) x = draw(limit);
    for (auto& x : b) x = gated ? kept(rng() % 2 ? gates : -gates) : draw(0.1);
    if (gated) b.back() = kept(gates);  // the unit that faults leave out
    out.w.push_back(std::move(w)), out.b.push_back(std::move(b));
  }
  return out;
}

struct Problem {
  MlpTrainShape shape;
  Data data;
  Weights start;
  int64_t first = 3;
  std::vector<double> rates;
  float scale = 1.0f / 255.0f, shift = -0.25f;
  double decay = 0;
};

// Inputs have a mean square of about 0.1, so pre-activations of hidden layers have a deviation of
// about 0.45 * scale * 1.4; active units give about 1.
inline Problem make_problem(const MlpTrainShape& shape, int steps, double decay, unsigned seed) {
  Problem p{
      shape,
      make_data(shape.sizes[0], shape.sizes[shape.layers], 500, 3 + steps * shape.batch, seed),
      make_weights(shape, seed + 1, shape.activation == ActivationFn::relu ? 1.0 : 0.0, 0.12),
      3,
      {},
      1.0f / 255.0f,
      -0.25f,
      decay};
  // Steps are large, so that a weight changes by many ulps, also in half types. But an update moves
  // a pre-activation by rate * width, and must not move it across its gate.
  const int widest = *std::max_element(shape.sizes + 1, shape.sizes + shape.layers);
  const bool relu = shape.activation == ActivationFn::relu;
  const double rate = relu ? std::min(0.05, 6.0 / widest) : 0.1;
  for (int t = 0; t < steps; ++t) p.rates.push_back(rate / (1 + 0.1 * t));
  return p;
}

struct Outcome {
  Weights weights;
  std::vector<double> loss;
  std::vector<int> correct;
  double least_gate = INFINITY;  // the smallest |pre-activation| of a relu
};

// A deliberate fault: the last sample is left out of the weight gradients of one layer, the last
// input out of the products of one layer, or the last class's gradient out of dx.
struct Fault {
  enum class Kind { none, sample, input, output } kind = Kind::none;
  int layer = 0;
};

inline double activate(ActivationFn f, double x) {
  return f == ActivationFn::relu   ? std::max(x, 0.0)
         : f == ActivationFn::tanh ? std::tanh(x)
                                   : 1 / (1 + std::exp(-x));
}
inline double derivative(ActivationFn f, double y) {
  return f == ActivationFn::relu   ? double(y > 0)
         : f == ActivationFn::tanh ? 1 - y * y
                                   : y * (1 - y);
}

// The samples of step `t`, in the half type.
struct Batch {
  std::vector<float> inputs;
  std::vector<int> labels;
};

inline Batch batch_of(const Problem& p, size_t t) {
  const int B = p.shape.batch, in = p.shape.sizes[0];
  Batch batch{std::vector<float>(size_t(B) * in), std::vector<int>(size_t(B))};
  for (int b = 0; b < B; ++b) {
    const int sample = p.data.order[p.first + int64_t(t) * B + b];
    batch.labels[b] = p.data.labels[sample];
    for (int k = 0; k < in; ++k) {
      const float byte = p.data.images[size_t(sample) * p.data.features + k];
      batch.inputs[size_t(b) * in + k] = round_half(p.shape.half, std::fma(byte, p.scale, p.shift));
    }
  }
  return batch;
}

// The steps with sums in Sum, rounded to the half type where the kernels round: inputs,
// activations, gradients by activations (before the division by the batch), and weights.
template <typename Sum>
class Replay {
 public:
  Replay(const Problem& p, const Fault& fault)
      : p_(p),
        s_(p.shape),
        fault_(fault),
        y_(size_t(s_.layers) + 1),
        dy_(y_.size()),
        hw_(y_.size()) {
    out_.weights = p.start;
  }

  Outcome run() {
    for (size_t t = 0; t < p_.rates.size(); ++t) {
      Batch batch = batch_of(p_, t);
      y_[0] = std::move(batch.inputs);
      for (int l = 0; l < s_.layers; ++l) forward(l);
      classify(batch.labels);
      for (int l = s_.layers - 1; l >= 0; --l) {
        if (l > 0) go_back(l);
        update(l, p_.rates[t]);
      }
    }
    return std::move(out_);
  }

 private:
  bool faulty(Fault::Kind kind, int l) const { return fault_.kind == kind && fault_.layer == l; }

  void forward(int l) {
    const int B = s_.batch, in = s_.sizes[l], width = s_.sizes[l + 1];
    const int terms = in - faulty(Fault::Kind::input, l);
    const bool last = l + 1 == s_.layers;
    hw_[l] = out_.weights.w[l];
    if (s_.masters) {
      for (auto& v : hw_[l]) v = round_half(s_.half, v);
    }
    logits_.clear();
    y_[l + 1].resize(size_t(B) * width);
    for (int b = 0; b < B; ++b) {
      for (int o = 0; o < width; ++o) {
        Sum sum = 0;
        const float *x = &y_[l][size_t(b) * in], *w = &hw_[l][size_t(o) * in];
        for (int k = 0; k < terms; ++k) sum += Sum(x[k]) * Sum(w[k]);
        sum += out_.weights.b[l][o];
        if (last) {
          logits_.push_back(sum);
          continue;
        }
        out_.least_gate = std::min(out_.least_gate, std::abs(double(sum)));
        y_[l + 1][size_t(b) * width + o] = round_half(s_.half, activate(s_.activation, sum));
      }
    }
  }

  // The loss, and dy of the last layer.
  void classify(const std::vector<int>& label) {
    const int B = s_.batch, L = s_.layers, C = s_.sizes[L];
    dy_[L].resize(size_t(B) * C);
    double total = 0;
    int hits = 0;
    for (int b = 0; b < B; ++b) {
      const double* z = &logits_[size_t(b) * C];
      const double top = *std::max_element(z, z + C);
      double sum = 0;
      for (int c = 0; c < C; ++c) sum += std::exp(z[c] - top);
      total += std::log(sum) + top - z[label[b]];
      hits += std::max_element(z, z + C) - z == label[b];
      for (int c = 0; c < C; ++c) {
        dy_[L][size_t(b) * C + c] =
            round_half(s_.half, std::exp(z[c] - top) / sum - (c == label[b]));
      }
    }
    out_.loss.push_back(total / B), out_.correct.push_back(hits);
  }

  // dy of the layer below layer `l`.
  void go_back(int l) {
    const int B = s_.batch, in = s_.sizes[l], width = s_.sizes[l + 1];
    std::vector<Sum> dx(in);
    dy_[l].resize(size_t(B) * in);
    for (int b = 0; b < B; ++b) {
      std::fill(dx.begin(), dx.end(), Sum(0));
      for (int o = 0; o < width - faulty(Fault::Kind::output, l); ++o) {
        const Sum g = dy_[l + 1][size_t(b) * width + o];
        for (int k = 0; k < in; ++k) dx[k] += g * Sum(hw_[l][size_t(o) * in + k]);
      }
      for (int k = 0; k < in; ++k) {
        const size_t at = size_t(b) * in + k;
        dy_[l][at] = round_half(s_.half, double(dx[k]) * derivative(s_.activation, y_[l][at]));
      }
    }
  }

  void update(int l, double rate) {
    const int B = s_.batch, in = s_.sizes[l], width = s_.sizes[l + 1];
    const double keep = 1 - rate * p_.decay, step = rate / B;
    const auto rounded = [&](double v) { return s_.masters ? float(v) : round_half(s_.half, v); };
    std::vector<Sum> g(in);
    for (int o = 0; o < width; ++o) {
      std::fill(g.begin(), g.end(), Sum(0));
      Sum gb = 0;
      for (int b = 0; b < B - faulty(Fault::Kind::sample, l); ++b) {
        const Sum e = dy_[l + 1][size_t(b) * width + o];
        gb += e;
        for (int k = 0; k < in; ++k) g[k] += e * Sum(y_[l][size_t(b) * in + k]);
      }
      float* w = &out_.weights.w[l][size_t(o) * in];
      for (int k = 0; k < in; ++k) w[k] = rounded(keep * w[k] - step * double(g[k]));
      float& bias = out_.weights.b[l][o];
      bias = rounded(bias - step * double(gb));
    }
  }

  const Problem& p_;
  const MlpTrainShape& s_;
  const Fault fault_;
  std::vector<std::vector<float>> y_, dy_,
      hw_;  // [layer]; y_[0] is the input, hw_ the weights in the half type
  std::vector<double> logits_;
  Outcome out_;
};

template <typename Sum>
Outcome replay(const Problem& p, const Fault& fault = {}) {
  return Replay<Sum>(p, fault).run();
}

}  // namespace ridgeline::cuda
