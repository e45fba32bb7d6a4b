#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "ridgeline/cuda/one_sample/cluster_net.h"
#include "ridgeline/cuda/one_sample/net_layout.h"
#include "tests/cuda/gpu.h"

namespace ridgeline::cuda {
namespace {

using one_sample::LayerArgs;
using one_sample::LayerKind;
using one_sample::NetLayout;

// A chain with random weights, and its answers in double.
class Chain {
 public:
  LayerChain chain;

  Chain& linear(int64_t in, int64_t out, std::optional<ActivationKind> activation = {}) {
    ChainLayer layer;
    layer.activation = activation;
    return add(layer, in, out, 1);
  }
  Chain& cell(CellKind kind, int64_t in, int64_t hidden) {
    ChainLayer layer;
    layer.cell = kind;
    return add(layer, in, hidden, gates(kind));
  }

  std::vector<double> run(const std::vector<float>& input) {
    std::vector<double> x(input.begin(), input.end());
    for (size_t l = 0; l < chain.layers.size(); ++l) {
      const ChainLayer& layer = chain.layers[l];
      x = layer.cell ? step(layer, x, h_[l], c_[l]) : product(layer, x);
    }
    return x;
  }
  std::vector<std::vector<double>> h_, c_;

 private:
  Chain& add(ChainLayer layer, int64_t in, int64_t out, int64_t gates) {
    layer.in = in;
    layer.out = out;
    layer.w = numbers(gates * out * in, in);
    layer.b = numbers(gates * out, in);
    if (layer.cell) {
      layer.w_hh = numbers(gates * out * out, out);
      layer.b_hh = numbers(gates * out, out);
    }
    chain.layers.push_back(layer);
    h_.emplace_back(size_t(out), 0.0);
    c_.emplace_back(size_t(out), 0.0);
    return *this;
  }
  const float* numbers(int64_t count, int64_t fan_in) {
    std::uniform_real_distribution<float> each(-1, 1);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = each(random_) * float(std::sqrt(3.0 / double(fan_in)));
    memory_.push_back(std::move(values));
    return memory_.back().data();
  }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double dot(const float* w, const std::vector<double>& x) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += double(w[i]) * x[i];
    return sum;
  }
  static double apply(std::optional<ActivationKind> kind, double v) {
    if (kind == ActivationKind::relu) return std::max(v, 0.0);
    if (kind == ActivationKind::tanh) return std::tanh(v);
    if (kind == ActivationKind::sigmoid) return sigmoid(v);
    if (kind == ActivationKind::gelu) return 0.5 * v * std::erfc(-v / std::sqrt(2.0));
    return v;
  }
  static std::vector<double> product(const ChainLayer& layer, const std::vector<double>& x) {
    std::vector<double> y;
    for (int64_t r = 0; r < layer.out; ++r) {
      y.push_back(apply(layer.activation, dot(layer.w + r * layer.in, x) + double(layer.b[r])));
    }
    return y;
  }
  static std::vector<double> step(const ChainLayer& layer, const std::vector<double>& x,
                                  std::vector<double>& h, std::vector<double>& c) {
    std::vector<double> next;
    for (int64_t u = 0; u < layer.out; ++u) {
      const auto sums = [&](int64_t gate) {
        const int64_t row = gate * layer.out + u;
        return std::pair(dot(layer.w + row * layer.in, x) + double(layer.b[row]),
                         dot(layer.w_hh + row * layer.out, h) + double(layer.b_hh[row]));
      };
      const auto sum = [&](int64_t gate) { return sums(gate).first + sums(gate).second; };
      const auto at = size_t(u);
      if (layer.cell == CellKind::lstm) {
        c[at] = sigmoid(sum(1)) * c[at] + sigmoid(sum(0)) * std::tanh(sum(2));
        next.push_back(sigmoid(sum(3)) * std::tanh(c[at]));
      } else if (layer.cell == CellKind::gru) {
        const double r = sigmoid(sum(0)), z = sigmoid(sum(1));
        next.push_back((1 - z) * std::tanh(sums(2).first + r * sums(2).second) + z * h[at]);
      } else {
        next.push_back(layer.cell == CellKind::rnn_tanh ? std::tanh(sum(0))
                                                        : std::max(sum(0), 0.0));
      }
    }
    return h = next;
  }

  std::mt19937 random_{1};
  std::vector<std::vector<float>> memory_;
};

std::vector<float> random_input(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> each;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = each(random);
  return x;
}

std::vector<Chain> chains() {
  std::vector<Chain> all(7);
  all[0].linear(1, 1);
  all[1].linear(7, 13, ActivationKind::tanh).linear(13, 5, ActivationKind::gelu).linear(5, 3);
  all[2]
      .linear(85, 67, ActivationKind::relu)
      .linear(67, 129, ActivationKind::sigmoid)
      .linear(129, 11);
  all[3].cell(CellKind::lstm, 3, 19).cell(CellKind::lstm, 19, 19).linear(19, 1);
  all[4].cell(CellKind::gru, 5, 37).cell(CellKind::gru, 37, 33);
  all[5].cell(CellKind::rnn_tanh, 9, 33).linear(33, 2, ActivationKind::sigmoid);
  all[6].linear(4, 6).cell(CellKind::rnn_relu, 6, 21);
  return all;
}

// Every row of every matrix is in exactly one block's share, with its bias, and everything else is
// zero.
TEST(OneSampleLayout, HasEachRowOnce) {
  for (const Chain& each : chains()) {
    for (const int blocks : {1, 2, 16}) {
      std::string why;
      const auto layout =
          one_sample::lay_out_net(each.chain, {size_t{200} << 10, true, blocks}, why);
      ASSERT_TRUE(layout) << why;
      double sum = 0, want = 0;
      for (const float value : layout->weights) sum += double(value);
      for (const ChainLayer& layer : each.chain.layers) {
        const int64_t rows = layer.out * (layer.cell ? gates(*layer.cell) : 1);
        for (int64_t i = 0; i < rows * layer.in; ++i) want += double(layer.w[i]);
        for (int64_t i = 0; i < rows; ++i) want += double(layer.b[i]);
        if (!layer.cell) continue;
        for (int64_t i = 0; i < rows * layer.out; ++i) want += double(layer.w_hh[i]);
        for (int64_t i = 0; i < rows; ++i) want += double(layer.b_hh[i]);
      }
      EXPECT_NEAR(sum, want, 1e-6 * double(layout->weights.size()));
      const LayerArgs& first = layout->args.layer[0];
      const ChainLayer& layer = each.chain.layers[0];
      const int gate = first.kind == LayerKind::linear || first.kind == LayerKind::rnn_tanh ? 0 : 1;
      const int64_t row = gate * (one_sample::outputs_per_group(first.kind) == 1 ? layer.out : 1);
      if (row * layer.in < layer.out * layer.in) {  // row 1 of group 0 of block 0
        EXPECT_EQ(layout->weights[size_t(first.w + gate * first.in)], layer.w[row * layer.in]);
        EXPECT_EQ(layout->weights[size_t(first.b + gate)], layer.b[row]);
      }
    }
  }
}

TEST(OneSampleLayout, RefusesWhatDoesNotFit) {
  std::string why;
  Chain wide;
  wide.linear(900, 900, ActivationKind::relu).linear(900, 900);
  EXPECT_FALSE(one_sample::lay_out_net(wide.chain, {size_t{200} << 10, true, 1}, why));
  EXPECT_THAT(why, ::testing::HasSubstr("fit"));
  EXPECT_TRUE(one_sample::lay_out_net(wide.chain, {size_t{227} << 10, true, 0}, why) ||
              why.find("fit") != std::string::npos);
  Chain other;
  other.linear(4, 4, ActivationKind::silu);
  EXPECT_FALSE(one_sample::lay_out_net(other.chain, {size_t{200} << 10, true, 1}, why));
}

class OneSampleNets : public test::GpuTest, public ::testing::WithParamInterface<bool> {};

// A dot product of n fp32 numbers errs by about n * 2^-24 of its terms; states pass it on.
TEST_P(OneSampleNets, AnswerAsTheReference) {
  CudaRuntime& runtime = gpu();
  if (runtime.architecture() < 90) GTEST_SKIP() << "clusters need compute capability 9.0";
  for (Chain& each : chains()) {
    for (const int blocks : {0, 1, 2, 4, 8, 16}) {
      std::string why;
      OneSampleOptions options;
      options.resident = GetParam();
      options.idle_seconds = 0.02;  // it exits now and then, and is launched again
      const auto net = make_cluster_net(runtime, each.chain, options, why, blocks);
      ASSERT_TRUE(net) << why;
      size_t floats = 0;
      for (const ChainLayer& layer : each.chain.layers) {
        if (layer.cell) floats += size_t(layer.out) * (*layer.cell == CellKind::lstm ? 2 : 1);
      }
      for (auto& h : each.h_) std::ranges::fill(h, 0.0);
      for (auto& c : each.c_) std::ranges::fill(c, 0.0);
      std::vector<float> y(size_t(each.chain.layers.back().out)), state(floats);
      const auto compare = [&](uint32_t seed) {
        const auto x = random_input(each.chain.layers.front().in, seed);
        net->run(x.data(), y.data());
        const auto want = each.run(x);
        for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], want[i], 2e-5) << i;
      };
      for (uint32_t seed = 0; seed < 20; ++seed) compare(seed);
      net->save_state(state.data());
      const auto h = each.h_, c = each.c_;
      for (uint32_t seed = 20; seed < 25; ++seed) compare(seed);
      if (floats > 0) {
        net->restore_state(state.data());
        each.h_ = h;
        each.c_ = c;
      }
      for (uint32_t seed = 30; seed < 35; ++seed) compare(seed);
      if (GetParam() && blocks == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        compare(40);
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Ways, OneSampleNets, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "resident" : "launched"; });

}  // namespace
}  // namespace ridgeline::cuda
