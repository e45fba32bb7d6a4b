#pragma once

#include <random>

#include "tests/support/training_net.h"

namespace ridgeline::test {

// A random perceptron as people might write it: widths odd and even, few and many layers and rows,
// every optimizer, activation and loss.
inline TrainingNet random_net(uint32_t seed, Precision precision) {
  const bool half = size_of(storage(precision)) == 2;
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return int64_t(random() % n); };
  const auto one_of = [&](std::initializer_list<int64_t> all) {
    return all.begin()[below(uint32_t(all.size()))];
  };
  TrainingNet net;
  net.name = "random " + std::to_string(seed);
  const int64_t layers = 1 + below(4) + (below(4) == 0 ? below(7) : 0);
  net.widths.push_back(one_of({1 + below(40), 1 + below(300), 64, 784}));
  for (int64_t l = 1; l < layers; ++l) {
    net.widths.push_back(
        one_of({1 + below(20), 1 + below(100), 16 * (1 + below(8)), 32, 128, 1 + below(280)}));
  }
  net.widths.push_back(one_of({2 + below(9), 10, 1 + below(40), 2 + below(150)}));
  net.batch = one_of({1 + below(8), 1 + below(40), 16, 32, 64, 1 + below(300),
                      layers < 3 ? 1 + below(1000) : 128});
  net.activation = kActivations[below(uint32_t(std::size(kActivations)))];
  const char* kUpdates[] = {"sgd", "momentum", "nesterov", "adam", "adamw"};
  net.update = kUpdates[below(5)];
  net.dropout = below(3) == 0 ? 0.1 + 0.1 * double(below(5)) : 0;
  net.mse = below(4) == 0;
  net.clip = below(4) == 0;
  net.bias = below(5) != 0;
  net.steps = one_of({1, 1, 2, 3});
  if (half && net.update.starts_with("adam")) net.steps = 1;
  net.masters = half && below(2) == 0;
  net.loss_scale = half && below(3) == 0 ? 64 : 0;
  net.floats = below(2) == 0;
  // Losses of values, except those whose derivatives jump, because a bound says little there.
  const LossFn kLosses[] = {LossFn::huber, LossFn::bce_with_logits};
  if (!net.mse && below(3) == 0) net.loss_fn = kLosses[below(2)];
  const bool by_element = net.mse || net.loss_fn;
  if (by_element && below(2) == 0) net.target_columns = net.widths.back();
  // Statistics of few numbers have bounds that say nothing.
  const char* kNorms[] = {"layernorm", "rmsnorm", "batchnorm"};
  bool wide = net.batch >= 4;
  for (size_t l = 1; l + 1 < net.widths.size(); ++l) wide &= net.widths[l] >= 4;
  if (wide && layers < 4 && below(3) == 0) net.norm = kNorms[below(3)];
  return net;
}

// Nets with convolutions of awkward shapes: a single image, windows that leave pixels out, no pool,
// strides, several samples to a block of the GPU, every optimizer.
inline std::vector<TrainingNet> conv_nets() {
  return {
      {.name = "one image",
       .batch = 1,
       .widths = {0, 5},
       .image = {1, 6, 7},
       .convolutions = {{.out = 5}}},
      {.name = "no pool, no bias, momentum",
       .batch = 3,
       .widths = {0, 9, 4},
       .update = "momentum",
       .bias = false,
       .image = {1, 6, 7},
       .convolutions = {{.out = 8, .kernel = 5, .pad = 2, .pool = 0, .bias = false}}},
      {.name = "two, with pixels left out, Nesterov",
       .batch = 29,
       .widths = {0, 6, 4},
       .update = "nesterov",
       .image = {1, 9, 11},
       .convolutions = {{.out = 8}, {.out = 11, .kernel = 2, .pad = 0}}},
      {.name = "strides, tanh, Adam",
       .batch = 5,
       .widths = {0, 4},
       .activation = ActivationKind::tanh,
       .update = "adam",
       .image = {2, 9, 8},
       .convolutions = {{.out = 5, .kernel = 4, .stride = 2},
                        {.out = 20, .stride = 2, .pool = 0, .activates = false}}},
      {.name = "gelu before pools of three, AdamW",
       .batch = 4,
       .widths = {0, 4},
       .activation = ActivationKind::gelu,
       .update = "adamw",
       .image = {3, 8, 7},
       .convolutions = {{.out = 17, .kernel = 1, .pad = 0, .pool = 3}}},
      {.name = "normed",
       .batch = 12,
       .widths = {0, 4},
       .image = {1, 8, 9},
       .convolutions = {{.out = 5, .norm = true, .bias = false}}},
      {.name = "two normed, strided, floats",
       .batch = 29,
       .widths = {0, 7},
       .update = "adam",
       .floats = true,
       .image = {1, 11, 10},
       .convolutions = {{.out = 12, .pool = 0, .norm = true},
                        {.out = 12, .stride = 2, .pool = 0, .norm = true}}},
      {.name = "shifted and flipped, two steps",
       .batch = 23,
       .widths = {0, 6},
       .steps = 2,
       .image = {3, 6, 9},
       .augment = {.seed = 77, .shift = 2, .flip = true},
       .convolutions = {{.out = 6}}},
      {.name = "two samples to a block, normed, shifted",
       .batch = 140,
       .widths = {0, 5},
       .image = {1, 5, 6},
       .augment = {.seed = 5, .shift = 1, .flip = false},
       .convolutions = {{.out = 4, .norm = true}}},
  };
}

// A random net with convolutions, small enough for the oracle.
inline TrainingNet random_conv_net(uint32_t seed, Precision precision) {
  TrainingNet net = random_net(seed, precision);
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return int64_t(random() % n); };
  net.name = "random convolutions " + std::to_string(seed);
  net.clip = false, net.loss_scale = 0, net.norm = {}, net.dropout = 0;
  while (net.widths.size() > 3) net.widths.erase(net.widths.begin());
  net.batch = below(6) == 0 ? 133 + below(20) : 1 + below(40);
  net.image = {1 + below(2), 7 + below(9), 7 + below(9)};
  for (int64_t i = 0, count = 1 + below(2); i < count; ++i) {
    ConvolutionNet conv{1 + below(20)};
    conv.kernel = 1 + below(5), conv.stride = 1 + below(2);
    conv.pad = below(uint32_t(conv.kernel));
    conv.pool = i == 0 && below(2) == 0 ? 2 : 0;
    conv.norm = net.batch >= 4 && below(2) == 0, conv.bias = below(3) != 0;
    conv.activates = below(6) != 0;
    if (i == 1 && conv.kernel > 3) conv.kernel = 3, conv.pad = 1;
    if (conv.norm) net.steps = 1;  // bounds grow beyond all numbers in several
    net.convolutions.push_back(conv);
  }
  if (!net.floats && below(2) == 0) net.augment = {seed, below(4), below(2) == 0};
  return net;
}

}  // namespace ridgeline::test
