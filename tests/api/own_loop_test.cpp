#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ridgeline/ridgeline.h"

// The interface for programs with their own training loop: gradients, and single steps.
namespace ridgeline {
namespace {

constexpr int64_t kSamples = 5, kFeatures = 4, kOutputs = 3;

Config net(const char* precision) {
  Config config;
  config.add("linear", {{"out", 6}})
      .add("tanh")
      .add("layernorm")
      .add("linear", {{"out", kOutputs}});
  config.set("train.optimizer.type", "sgd").set("train.optimizer.lr", 0.1);
  config.set("run.device", "cpu").set("run.tune", false).set("run.precision", precision);
  return config;
}

DeviceOptions plain() {
  DeviceOptions options;
  options.device = "cpu";
  options.tune = false;
  options.threads = 1;
  return options;
}

std::vector<double> numbers(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> all(static_cast<size_t>(count));
  for (double& each : all) each = normal(random);
  return all;
}

// The loss is the dot product of the outputs with dy.
double loss(Differentiable& function, const std::vector<double>& x, const std::vector<double>& dy) {
  std::vector<double> y(dy.size());
  function.forward(x.data(), kSamples, y.data(), 1, true);
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
  return sum;
}

TEST(Differentiable, GradientsAreDifferenceQuotients) {
  Differentiable function(Model::create(net("fp64"), {kFeatures}, plain()), plain());
  ASSERT_EQ(function.type(), ArrayType::float64);
  std::vector<double> x = numbers(kSamples * kFeatures, 1);
  const std::vector<double> dy = numbers(kSamples * kOutputs, 2);
  std::vector<double> dx(x.size());
  std::vector<std::vector<double>> grads;
  std::vector<void*> places;
  for (const NamedArray& each : function.weights()) {
    int64_t count = 1;
    for (const int64_t extent : each.values.shape) count *= extent;
    grads.emplace_back(size_t(count));
  }
  for (auto& each : grads) places.push_back(each.data());
  function.backward(x.data(), dy.data(), kSamples, dx.data(), places, 1, true);

  constexpr double kStep = 1e-5;  // the error of a quotient is about its square
  const auto check = [&](double& at, double gradient) {
    const double before = at;
    at = before + kStep;
    const double above = loss(function, x, dy);
    at = before - kStep;
    const double below = loss(function, x, dy);
    at = before;
    EXPECT_NEAR(gradient, (above - below) / (2 * kStep), 1e-7 * (1 + std::abs(gradient)));
  };
  for (size_t i = 0; i < x.size(); ++i) check(x[i], dx[i]);
  for (size_t w = 0; w < grads.size(); ++w) {
    auto* weight = static_cast<double*>(const_cast<void*>(function.weights()[w].values.data));
    for (size_t i = 0; i < grads[w].size(); ++i) check(weight[i], grads[w][i]);
  }
}

TEST(StepTrainer, MakesTheStepsOfARun) {
  std::vector<float> x;
  for (const double each : numbers(40 * kFeatures, 3)) x.push_back(float(each));
  std::vector<int32_t> label;
  for (int32_t i = 0; i < 40; ++i) label.push_back(i % int32_t(kOutputs));
  const Samples all{{x, {40, kFeatures}}, {label, {40}}};
  Config config = net("fp32");
  config.set("train.batch", 10).set("train.epochs", 2).set("train.shuffle", false);
  const Model start = Model::create(config, {kFeatures}, plain());
  TrainOptions options;
  options.start = start;
  options.hold_out = false;
  const int64_t before = copied_bytes();
  const Model run = train(config, all, options).model;
  StepTrainer trainer(start, plain());
  for (int64_t i = 0; i < 8; ++i) {
    const auto first = size_t(i % 4 * 10);
    const std::span samples(x.data() + first * kFeatures, 10 * kFeatures);
    const std::span labels(label.data() + first, 10);
    const StepResult made = trainer.step({{samples, {10, kFeatures}}, {labels, {10}}});
    EXPECT_GT(made.loss, 0);
    EXPECT_TRUE(made.accuracy.has_value());
  }
  EXPECT_EQ(trainer.steps(), 8);
  Model stepped = Model::create(config, {kFeatures}, plain());
  trainer.give_weights(stepped);
  const std::vector<NamedArray> wanted = run.weights(), got = stepped.weights();
  for (size_t w = 0; w < wanted.size(); ++w) {
    const Array &a = wanted[w].values, &b = got[w].values;
    int64_t count = 1;
    for (const int64_t extent : a.shape) count *= extent;
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_NEAR(static_cast<const float*>(a.data)[i], static_cast<const float*>(b.data)[i], 1e-5);
    }
  }
  EXPECT_LE(copied_bytes() - before, int64_t(x.size() * sizeof(float)) * 3);
}

TEST(TrainOptions, RatesCanBeChanged) {
  std::vector<float> x;
  for (const double each : numbers(40 * kFeatures, 3)) x.push_back(float(each));
  std::vector<int32_t> label(40, 0);
  for (size_t i = 0; i < 40; i += 2) label[i] = 1;
  Config config = net("fp32");
  config.set("train.batch", 10).set("train.epochs", 2);
  TrainOptions options;
  options.start = Model::create(config, {kFeatures}, plain());
  options.hold_out = false;
  options.learning_rate = [](int64_t step, double scheduled) {
    EXPECT_EQ(scheduled, 0.1);
    return step < 4 ? 0.0 : scheduled;
  };
  std::vector<double> rates;
  options.epoch_ended = [&](const Epoch& epoch) {
    rates.push_back(epoch.learning_rate);
    return true;
  };
  train(config, {{x, {40, kFeatures}}, {label, {40}}}, options);
  EXPECT_THAT(rates, testing::ElementsAre(0.0, 0.1));
}

TEST(Array, OnAGpuIsRefusedByAModelOfTheCpu) {
  Model model = Model::create(net("fp32"), {kFeatures}, plain());
  Array far;
  far.data = &model;  // never read
  far.shape = {2, kFeatures};
  far.gpu = 0;
  float out[2 * kOutputs];
  EXPECT_THROW(model.predict(far, out, -1), Error);
  EXPECT_EQ(model.queue().gpu(), -1);
}

}  // namespace
}  // namespace ridgeline
