#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/support/cases.h"

namespace ridgeline::test {

// A convolution with square windows, and what follows it.
struct ConvolutionNet {
  int64_t out, kernel = 3, stride = 1, pad = 1;
  int64_t pool = 2;  // 0: none
  bool norm = false, bias = true, activates = true;
};

// A perceptron whose training step makes a case; perhaps with convolutions of `image` below it,
// which then give the first of the widths.
struct TrainingNet {
  std::string name;
  int64_t batch;
  std::vector<int64_t> widths;  // input, hidden..., classes
  ActivationKind activation = ActivationKind::relu;
  std::string update = "sgd";
  double dropout = 0;
  bool mse = false, clip = false, bias = true;
  bool summed = false;  // over ranks, of which there is one
  int64_t steps = 1;
  bool masters = false;  // weights in fp32, those of products with copies
  double loss_scale = 0;
  int64_t set_samples = 29;
  double shift = -1;                // of samples of bytes, after a scale of 1/128
  bool floats = false;              // samples of fp32
  int64_t target_columns = 0;       // values of a sample's target; 0: a label
  std::optional<LossFn> loss_fn{};  // of an elementwise loss
  std::string norm{};               // of hidden layers: layernorm, rmsnorm or batchnorm
  Image image{};
  Augmentation augment{};  // of the images
  std::vector<ConvolutionNet> convolutions{};
};

Case training_case(const TrainingNet& net, DType dtype);

}  // namespace ridgeline::test
