#pragma once

#include <utility>
#include <vector>

#include "tests/support/training_net.h"

namespace ridgeline::bench {

// The nets that generate_bench times.
using test::TrainingNet;

constexpr int64_t kSteps = 1000;

struct Net {
  const char* name;
  TrainingNet net;
};

inline void add_convolutions(std::vector<Net>* all) {
  const auto add = [&](const char* name, int64_t batch, std::vector<test::ConvolutionNet> layers,
                       std::vector<int64_t> widths, const char* update) {
    widths.insert(widths.begin(), 0);
    TrainingNet net{.name = name, .batch = batch, .widths = std::move(widths), .update = update};
    net.image = {1, 28, 28}, net.convolutions = std::move(layers);
    net.steps = kSteps, net.set_samples = 60000;
    all->push_back({name, net});
  };
  const auto normed = [](int64_t out, int64_t stride, int64_t pool, bool bias) {
    return test::ConvolutionNet{
        .out = out, .stride = stride, .pool = pool, .norm = true, .bias = bias};
  };
  add("conv-mnist", 128, {normed(16, 1, 2, false), normed(32, 1, 2, false)}, {128, 10}, "adam");
  add("conv-8-16", 32, {{.out = 8}, {.out = 16}}, {10}, "momentum");
  add("conv-12-12", 29, {normed(12, 1, 0, true), normed(12, 2, 0, true)}, {10}, "adam");
  add("conv-lenet", 128, {{.out = 32, .kernel = 5, .pad = 2}, {.out = 64, .kernel = 5, .pad = 2}},
      {256, 10}, "adam");
}

inline std::vector<Net> nets() {
  using A = ActivationKind;
  std::vector<Net> all;
  const auto add = [&](const char* name, int64_t batch, std::vector<int64_t> widths,
                       const char* update, A activation = A::relu, double dropout = 0) {
    TrainingNet net{.name = name,
                    .batch = batch,
                    .widths = std::move(widths),
                    .activation = activation,
                    .update = update};
    net.dropout = dropout;
    net.steps = kSteps;
    net.set_samples = 60000;
    all.push_back({name, net});
  };
  add("fashion-mlp", 128, {784, 256, 128, 10}, "adam", A::relu, 0.1);
  add("mnist-mlp", 128, {784, 256, 128, 10}, "adam");
  add("784-2000-10", 1000, {784, 2000, 10}, "adam");
  add("seven", 32, {784, 128, 128, 128, 128, 128, 128, 10}, "adam");
  add("momentum-tanh", 64, {784, 300, 100, 10}, "momentum", A::tanh);
  add("sgd-128x3", 32, {784, 128, 128, 128, 10}, "sgd");
  add("sgd-512x3", 32, {784, 512, 512, 512, 10}, "sgd");
  add("adam-1024x3", 128, {784, 1024, 1024, 1024, 10}, "adam");
  add("adam-512x2", 64, {784, 512, 512, 10}, "adam");
  add("tiny", 256, {32, 64, 64, 1}, "adam");
  add("tiny-8192", 8192, {32, 64, 64, 1}, "adam");
  add("sigmoid-3000", 3000, {784, 512, 10}, "sgd", A::sigmoid);
  add("mnist-4096", 4096, {784, 256, 128, 10}, "adam");
  add("adam-2048x2", 128, {784, 2048, 2048, 10}, "adam");
  add("momentum-4096", 64, {784, 4096, 10}, "momentum");
  add("odd-777", 100, {784, 777, 333, 10}, "adam");
  add("adamw-1024x2", 128, {784, 1024, 1024, 10}, "adamw", A::relu, 0.2);
  add("layernorm", 64, {784, 256, 256, 10}, "adamw", A::gelu);
  all.back().net.norm = "layernorm";
  add("batchnorm", 128, {784, 256, 256, 10}, "adam");
  all.back().net.norm = "batchnorm";
  add("batchnorm-1024", 1024, {784, 512, 256, 10}, "adam");
  all.back().net.norm = "batchnorm";
  for (const auto& [name, batch] : {std::pair{"table-256", 256}, std::pair{"table-1024", 1024},
                                    std::pair{"table-8192", 8192}}) {
    add(name, batch, {28, 256, 256, 1}, "adam");
    all.back().net.mse = all.back().net.floats = true;
    all.back().net.target_columns = 1;
  }
  add_convolutions(&all);
  return all;
}

}  // namespace ridgeline::bench
