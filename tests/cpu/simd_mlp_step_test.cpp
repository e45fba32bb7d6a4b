#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/cpu/simd/mlp_step.h"

namespace ridgeline::cpu::simd {
namespace {

struct Net {
  std::vector<int64_t> sizes;
  SimdActivation act;
  int64_t n;
};

// A network with its data, its weights in T, and the same step in plain doubles.
template <typename T>
class Trial {
 public:
  explicit Trial(const Net& net) : net_(net) {
    std::mt19937 random(11);
    const int64_t rows = net.n + 7;
    set_.resize(size_t(rows * net.sizes[0]) + 64);
    for (uint8_t& byte : set_) byte = uint8_t(random());
    for (int64_t r = 0; r < rows; ++r) labels_.push_back(int32_t(random() % uint32_t(classes())));
    for (int64_t r = 0; r < net.n; ++r) order_.push_back(int32_t(random() % uint32_t(rows)));
    std::uniform_real_distribution<double> value(-1, 1);
    for (size_t l = 0; l + 1 < net.sizes.size(); ++l) {
      const int64_t in = net.sizes[l], out = net.sizes[l + 1];
      const bool last = l + 2 == net.sizes.size();
      T* p[4];
      for (const int k : {0, 1, 2, 3}) {  // w, b and their momentum
        buffers_.emplace_back(size_t(k % 2 == 0 ? in * out : out) * sizeof(T));
        p[k] = reinterpret_cast<T*>(buffers_.back().data());
        for (int64_t i = 0; i < (k % 2 == 0 ? in * out : out); ++i) {
          p[k][i] = T(value(random) / std::sqrt(double(in)) * (k < 2 ? 1 : 0.1));
        }
      }
      layers_.push_back({in, out, last ? SimdActivation() : net.act, p[0], p[1], p[2], p[3]});
      for (const int k : {0, 1, 2, 3}) {
        want_.emplace_back(p[k], p[k] + (k % 2 == 0 ? in * out : out));
      }
    }
  }

  MlpScore run(ThreadPool& pool, int64_t n_max) {
    MlpStep<T> step(layers_, n_max, pool.size());
    const Buffer workspace(step.workspace_bytes());
    std::memset(workspace.data(), 0xff, step.workspace_bytes());  // NaN: nothing stale may be used
    step.bind(workspace.data());
    return step.run(pool, {set_.data(), labels_.data(), order_.data(), T(kScale), T(kShift)},
                    net_.n, 1.0 / double(net_.n),
                    {.sgd = {T(kLr), T(kMomentum), T(kDecay), false}});
  }

  // Makes the step in doubles; updates want().
  double reference() {
    const size_t depth = layers_.size();
    const auto n = size_t(net_.n);
    std::vector<std::vector<double>> y(depth + 1), z(depth), dz(depth);
    for (size_t r = 0; r < n; ++r) {
      for (int64_t f = 0; f < net_.sizes[0]; ++f) {
        const uint8_t byte = set_[size_t(order_[r] * net_.sizes[0] + f)];
        y[0].push_back(byte * double(T(kScale)) + double(T(kShift)));
      }
    }
    for (size_t l = 0; l < depth; ++l) forward(l, y[l], z[l], y[l + 1]);
    double loss = 0;
    const auto many = size_t(classes());
    dz[depth - 1].resize(n * many);
    for (size_t r = 0; r < n; ++r) {
      const double* logits = y[depth].data() + r * many;
      double sum = 0;
      for (size_t c = 0; c < many; ++c) sum += std::exp(logits[c]);
      const auto label = size_t(labels_[size_t(order_[r])]);
      loss += std::log(sum) - logits[label];
      for (size_t c = 0; c < many; ++c) {
        dz[depth - 1][r * many + c] = (std::exp(logits[c]) / sum - double(c == label)) / double(n);
      }
    }
    for (size_t l = depth - 1; l > 0; --l) backward(l, z[l - 1], dz[l], dz[l - 1]);
    for (size_t l = 0; l < depth; ++l) update(l, y[l], dz[l]);
    return loss;
  }

  // The largest error of any weight, bias or momentum.
  double worst() const {
    double worst = 0;
    for (size_t i = 0; i < want_.size(); ++i) {
      const T* got = reinterpret_cast<const T*>(buffers_[i].data());
      for (size_t j = 0; j < want_[i].size(); ++j) {
        const double error = std::abs(double(got[j]) - want_[i][j]);
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
      }
    }
    return worst;
  }
  std::vector<T> weights() const {
    std::vector<T> all;
    for (size_t i = 0; i < want_.size(); ++i) {
      const T* got = reinterpret_cast<const T*>(buffers_[i].data());
      all.insert(all.end(), got, got + want_[i].size());
    }
    return all;
  }

 private:
  static constexpr double kScale = 1.0 / 255, kShift = -0.25, kLr = 0.1, kMomentum = 0.9,
                          kDecay = 0.01;
  int64_t classes() const { return net_.sizes.back(); }

  double f(double v) const {
    if (net_.act == ActivationKind::relu) return v > 0 ? v : 0;
    if (net_.act == ActivationKind::tanh) return std::tanh(v);
    if (net_.act == ActivationKind::sigmoid) return 1 / (1 + std::exp(-v));
    if (net_.act == ActivationKind::silu) return v / (1 + std::exp(-v));
    if (net_.act == ActivationKind::elu) return v > 0 ? v : net_.act.parameter * std::expm1(v);
    return 0.5 * v * std::erfc(-v * M_SQRT1_2);
  }
  double slope(double v) const {
    if (net_.act == ActivationKind::relu) return v > 0 ? 1 : 0;
    if (net_.act == ActivationKind::tanh) return 1 - f(v) * f(v);
    if (net_.act == ActivationKind::sigmoid) return f(v) * (1 - f(v));
    if (net_.act == ActivationKind::silu) {
      const double s = 1 / (1 + std::exp(-v));
      return s * (1 + v * (1 - s));
    }
    if (net_.act == ActivationKind::elu) return v > 0 ? 1 : net_.act.parameter * std::exp(v);
    return 0.5 * std::erfc(-v * M_SQRT1_2) + v * std::exp(-v * v / 2) / std::sqrt(2 * M_PI);
  }

  void forward(size_t l, const std::vector<double>& x, std::vector<double>& z,
               std::vector<double>& y) const {
    const auto in = size_t(layers_[l].in), out = size_t(layers_[l].out);
    for (size_t r = 0; r < size_t(net_.n); ++r) {
      for (size_t o = 0; o < out; ++o) {
        double sum = want_[4 * l + 1][o];
        for (size_t i = 0; i < in; ++i) sum += x[r * in + i] * want_[4 * l][o * in + i];
        z.push_back(sum);
        y.push_back(l + 1 == layers_.size() ? sum : f(sum));
      }
    }
  }
  void backward(size_t l, const std::vector<double>& z_below, const std::vector<double>& dz,
                std::vector<double>& dz_below) const {
    const auto in = size_t(layers_[l].in), out = size_t(layers_[l].out);
    for (size_t r = 0; r < size_t(net_.n); ++r) {
      for (size_t i = 0; i < in; ++i) {
        double sum = 0;
        for (size_t o = 0; o < out; ++o) sum += dz[r * out + o] * want_[4 * l][o * in + i];
        dz_below.push_back(sum * slope(z_below[r * in + i]));
      }
    }
  }
  void update(size_t l, const std::vector<double>& x, const std::vector<double>& dz) {
    const auto in = size_t(layers_[l].in), out = size_t(layers_[l].out);
    const auto step = [](double& w, double& m, double g) {
      m = kMomentum * m + g + kDecay * w;
      w -= kLr * m;
    };
    for (size_t o = 0; o < out; ++o) {
      double db = 0;
      for (size_t r = 0; r < size_t(net_.n); ++r) db += dz[r * out + o];
      step(want_[4 * l + 1][o], want_[4 * l + 3][o], db);
      for (size_t i = 0; i < in; ++i) {
        double g = 0;
        for (size_t r = 0; r < size_t(net_.n); ++r) g += dz[r * out + o] * x[r * in + i];
        step(want_[4 * l][o * in + i], want_[4 * l + 2][o * in + i], g);
      }
    }
  }

  Net net_;
  std::vector<uint8_t> set_;
  std::vector<int32_t> labels_, order_;
  std::vector<Buffer> buffers_;
  std::vector<MlpLayer<T>> layers_;
  std::vector<std::vector<double>> want_;
};

const Net kNets[] = {
    {{1, 1}, ActivationKind::relu, 1},
    {{3, 2}, ActivationKind::relu, 5},
    {{17, 5, 3}, ActivationKind::relu, 1},
    {{31, 70, 10}, ActivationKind::relu, 33},
    {{784, 128, 64, 10}, ActivationKind::relu, 32},
    {{49, 33, 21, 7}, ActivationKind::tanh, 19},
    {{20, 37, 100}, ActivationKind::gelu, 50},
    {{20, 37, 19, 10}, ActivationKind::silu, 33},
    {{20, 37, 19, 10}, {ActivationKind::elu, 0.7}, 33},
    {{40, 64, 64, 64, 80}, ActivationKind::relu, 100},
    {{29, 23, 10}, ActivationKind::sigmoid, 701},
    {{64, 700, 500, 10}, ActivationKind::relu, 40},  // weights that do not stay in a cache
};

template <typename T>
class SimdMlpStep : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SimdMlpStep, Types);

// One step moves weights of size 1 by lr = 0.1 times gradients below 1, each a sum over fewer than
// 1024 terms through at most four layers; a dropped term of the smallest net's mean is 1e-3 of it.
TYPED_TEST(SimdMlpStep, AgreesWithDoublesOnAnyNumberOfThreads) {
  using T = TypeParam;
  const double bound = 64 * std::numeric_limits<T>::epsilon();
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (const Net& net : kNets) {
      Trial<T> trial(net);
      const double want = trial.reference();
      const MlpScore got = trial.run(pool, net.n);
      EXPECT_NEAR(got.loss, want, bound * double(net.n)) << threads << ' ' << net.sizes[0];
      EXPECT_LE(trial.worst(), bound) << threads << " threads, " << net.sizes[0] << " in";
    }
  }
}

TYPED_TEST(SimdMlpStep, IsBitwiseRepeatable) {
  using T = TypeParam;
  ThreadPool pool(3);
  for (const Net& net : kNets) {
    Trial<T> once(net), again(net);
    once.run(pool, net.n);
    again.run(pool, net.n);
    EXPECT_EQ(once.weights(), again.weights());
  }
}

// On a busy machine one system thread may run the parts of all.
TYPED_TEST(SimdMlpStep, IsTheSameWithFewerSystemThreads) {
  using T = TypeParam;
  ThreadPool pool(3), shared(3);
  if (!shared.set_runners(1)) GTEST_SKIP() << "this build does not switch stacks";
  for (const Net& net : kNets) {
    Trial<T> once(net), again(net);
    once.run(pool, net.n);
    again.run(shared, net.n);
    EXPECT_EQ(once.weights(), again.weights());
  }
}

// The last batch of an epoch is smaller than the step was made for: some threads have no samples.
TYPED_TEST(SimdMlpStep, TakesSmallerBatches) {
  using T = TypeParam;
  const double bound = 64 * std::numeric_limits<T>::epsilon();
  ThreadPool pool(3);
  for (const int64_t n_max : {10, 100, 1000}) {
    Trial<T> trial({{21, 34, 10}, ActivationKind::relu, 9});
    const double want = trial.reference();
    EXPECT_NEAR(trial.run(pool, n_max).loss, want, bound * 9);
    EXPECT_LE(trial.worst(), bound) << n_max;
  }
}

// One step from zero moments: m is the gradient, for Adam times beta1_rest, which a step that
// stores gradients gives bit for bit. Rows of 1100 weights are updated in several blocks, odd ones
// too.
TEST(SimdMlpStepUpdates, UseTheGradientOfEveryRowOfAWideLayer) {
  constexpr int64_t kIn = 1100, kOut = 301, kClasses = 10, kSamples = 50;
  std::mt19937 random(5);
  std::vector<uint8_t> set(size_t(kSamples * kIn) + 64);
  for (uint8_t& byte : set) byte = uint8_t(random());
  std::vector<int32_t> labels(kSamples), order(300);
  for (int32_t& label : labels) label = int32_t(random() % kClasses);
  for (int32_t& sample : order) sample = int32_t(random() % kSamples);
  const Adam<float> adam(AdamUpdate{}, 1e-3, 1);
  const auto gradients = [&](GradientUse use, int threads, int64_t n) {
    std::mt19937 same(7);
    std::uniform_real_distribution<float> value(-0.05f, 0.05f);
    const auto numbers = [&](int64_t count, bool zero) {
      std::vector<float> all(size_t(count) + 16, 0.0f);
      for (float& v : all) v = zero ? 0.0f : value(same);
      return all;
    };
    struct Memory {
      std::vector<float> w, b, mw, mb, vw, vb;
    };
    std::vector<Memory> memory;
    for (const auto& [in, out] : {std::pair{kIn, kOut}, std::pair{kOut, kClasses}}) {
      memory.push_back({numbers(in * out, false), numbers(out, false), numbers(in * out, true),
                        numbers(out, true), numbers(in * out, true), numbers(out, true)});
    }
    std::vector<MlpLayer<float>> layers;
    for (size_t l = 0; l < 2; ++l) {
      Memory& at = memory[l];
      layers.push_back({l == 0 ? kIn : kOut, l == 0 ? kOut : kClasses,
                        l == 0 ? ActivationKind::relu : ActivationKind::none, at.w.data(),
                        at.b.data(), at.mw.data(), at.mb.data(), use, at.vw.data(), at.vb.data()});
    }
    ThreadPool pool(threads);
    MlpStep<float> step(layers, n, threads);
    const Buffer workspace(step.workspace_bytes());
    std::memset(workspace.data(), 0xff, step.workspace_bytes());
    step.bind(workspace.data());
    step.run(pool, {set.data(), labels.data(), order.data(), 1.0f / 255, 0}, n, 1.0 / double(n),
             {.sgd = {.momentum = use == GradientUse::sgd ? 0.9f : 0.0f}, .adam = adam});
    std::vector<float> all;
    for (const Memory& at : memory) {
      all.insert(all.end(), at.mw.begin(), at.mw.end());
      all.insert(all.end(), at.mb.begin(), at.mb.end());
    }
    return all;
  };
  for (const int threads : {1, 2, 3}) {
    for (const int64_t n : {40, 100, 300}) {  // 100: in several blocks, 300: in several chunks
      const std::vector<float> want = gradients(GradientUse::stored, threads, n);
      for (const GradientUse use : {GradientUse::adam, GradientUse::sgd}) {
        const std::vector<float> got = gradients(use, threads, n);
        const float factor = use == GradientUse::adam ? adam.beta1_rest : 1;
        int64_t wrong = 0;
        for (size_t i = 0; i < want.size(); ++i) wrong += got[i] != factor * want[i];
        EXPECT_EQ(wrong, 0) << threads << " threads, " << n << " samples, " << int(use);
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline::cpu::simd
