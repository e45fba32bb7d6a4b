#include "tests/support/training_net.h"

namespace ridgeline::test {

std::vector<Case> training_cases(DType dtype) {
  const TrainingNet nets[] = {
      {.name = "softmax regression", .batch = 8, .widths = {20, 4}},
      {.name = "one of everything", .batch = 1, .widths = {3, 2, 2}},
      {.name = "relu", .batch = 32, .widths = {50, 32, 10}},
      {.name = "deep, primes", .batch = 7, .widths = {41, 37, 29, 23, 5}},
      {.name = "deep, even", .batch = 32, .widths = {64, 32, 32, 32, 10}, .steps = 3},
      // Kernels for populations take bytes without a shift.
      {.name = "unshifted bytes", .batch = 37, .widths = {48, 70, 10}, .steps = 2, .shift = 0},
      {.name = "unshifted bytes, momentum",
       .batch = 41,
       .widths = {32, 128, 13},
       .update = "momentum",
       .shift = 0},
      {.name = "unshifted bytes, adam",
       .batch = 29,
       .widths = {64, 64, 10},
       .update = "adam",
       .shift = 0},
      {.name = "sigmoid momentum",
       .batch = 16,
       .widths = {30, 17, 10},
       .activation = ActivationKind::sigmoid,
       .update = "momentum",
       .steps = 2},
      {.name = "tanh nesterov mse",
       .batch = 9,
       .widths = {20, 16, 3},
       .activation = ActivationKind::tanh,
       .update = "nesterov",
       .mse = true},
      {.name = "gelu adamw",
       .batch = 16,
       .widths = {33, 24, 10},
       .activation = ActivationKind::gelu,
       .update = "adamw"},
      {.name = "dropout adam",
       .batch = 16,
       .widths = {20, 33, 10},
       .update = "adam",
       .dropout = 0.5},
      {.name = "dropout adam, in fours",
       .batch = 37,
       .widths = {20, 36, 68, 10},
       .update = "adam",
       .dropout = 0.25,
       .steps = 3},
      {.name = "tanh dropout adamw, primes",
       .batch = 41,
       .widths = {43, 37, 29, 71},
       .activation = ActivationKind::tanh,
       .update = "adamw",
       .dropout = 0.3,
       .bias = false,
       .steps = 2},
      {.name = "gelu dropout momentum",
       .batch = 5,
       .widths = {17, 19, 23, 3},
       .activation = ActivationKind::gelu,
       .update = "momentum",
       .dropout = 0.5},
      {.name = "floats", .batch = 19, .widths = {21, 16, 10}, .floats = true},
      // Two steps are smooth, because the second would bring a unit so near 0 that a rounding
      // decides which side of a rectifier it is on.
      {.name = "floats, two steps",
       .batch = 19,
       .widths = {21, 16, 10},
       .activation = ActivationKind::tanh,
       .steps = 2,
       .floats = true},
      {.name = "floats, regression, adam",
       .batch = 33,
       .widths = {28, 40, 17, 1},
       .update = "adam",
       .mse = true,
       .floats = true,
       .target_columns = 1},
      {.name = "huber of values",
       .batch = 18,
       .widths = {70, 30, 3},
       .activation = ActivationKind::tanh,
       .update = "momentum",
       .steps = 2,
       .floats = true,
       .target_columns = 3,
       .loss_fn = LossFn::huber},
      {.name = "binary cross-entropy of labels",
       .batch = 21,
       .widths = {15, 22, 6},
       .loss_fn = LossFn::bce_with_logits},
      {.name = "quantiles",
       .batch = 34,
       .widths = {9, 24, 4},
       .floats = true,
       .target_columns = 2,
       .loss_fn = LossFn::quantile},
      {.name = "clipped", .batch = 12, .widths = {20, 16, 10}, .clip = true},
      {.name = "no bias", .batch = 12, .widths = {20, 16, 10}, .bias = false},
      {.name = "summed", .batch = 32, .widths = {50, 33, 10}, .summed = true},
      {.name = "summed, dropout",
       .batch = 31,
       .widths = {50, 33, 21, 10},
       .dropout = 0.2,
       .summed = true},
      {.name = "summed, deep, adam, clipped",
       .batch = 11,
       .widths = {20, 16, 13, 5},
       .update = "adam",
       .clip = true,
       .bias = false,
       .summed = true},
  };
  std::vector<Case> all;
  for (TrainingNet net : nets) {
    // Adam's first step turns a gradient's last bit into as much as a whole step: in a half two
    // runs of several steps have little in common.
    if (size_of(dtype) == 2 && net.update.starts_with("adam")) net.steps = 1;
    all.push_back(training_case(net, dtype));
    if (size_of(dtype) != 2) continue;
    net.masters = true;
    all.push_back(training_case(net, dtype));
    net.loss_scale = 64;
    all.push_back(training_case(net, dtype));
  }
  return all;
}

std::vector<Case> tall_training_cases(DType dtype) {
  const TrainingNet nets[] = {
      {.name = "tall sigmoid",
       .batch = 150,
       .widths = {100, 132, 10},
       .activation = ActivationKind::sigmoid,
       .steps = 2},
      {.name = "tall tanh momentum, primes",
       .batch = 131,
       .widths = {67, 79, 71, 13},
       .activation = ActivationKind::tanh,
       .update = "momentum"},
      {.name = "tall, in eights, momentum",
       .batch = 131,
       .widths = {104, 136, 13},
       .update = "momentum",
       .steps = 2},
      {.name = "tall sigmoid, in eights",
       .batch = 257,
       .widths = {200, 64, 10},
       .activation = ActivationKind::sigmoid},
      {.name = "tall sigmoid dropout adam",
       .batch = 263,
       .widths = {50, 60, 35, 10},
       .activation = ActivationKind::sigmoid,
       .update = "adam",
       .dropout = 0.2,
       .steps = 2},
      {.name = "short, in eights", .batch = 32, .widths = {64, 32, 10}},
      {.name = "tall floats, regression, adam",
       .batch = 290,
       .widths = {65, 40, 70},
       .update = "adam",
       .mse = true,
       .floats = true,
       .target_columns = 70},
      // Wide enough for kernels that multiply by blocks of 32 on five threads, each of which has
      // rows of every layer or, with more samples, samples.
      {.name = "tall, wide dropout momentum",
       .batch = 150,
       .widths = {70, 100, 131, 99},
       .activation = ActivationKind::tanh,
       .update = "momentum",
       .dropout = 0.2,
       .steps = 2},
      {.name = "tall, wide gelu adam",
       .batch = 70,
       .widths = {33, 165, 100, 10},
       .activation = ActivationKind::gelu,
       .update = "adam"},
      {.name = "tall, wide floats, regression",
       .batch = 407,
       .widths = {65, 100, 97},
       .mse = true,
       .floats = true,
       .target_columns = 97},
  };
  std::vector<Case> all;
  for (const TrainingNet& net : nets) all.push_back(training_case(net, dtype));
  if (size_of(dtype) != 2) return all;
  for (const bool masters : {false, true}) {  // layers over 512 wide
    const TrainingNet net{
        .name = "wide", .batch = 32, .widths = {24, 1000, 24, 10}, .masters = masters};
    all.push_back(training_case(net, dtype));
  }
  return all;
}

}  // namespace ridgeline::test
