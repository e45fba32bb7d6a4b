#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/nn/config_table.h"

namespace ridgeline::nn {

enum class LossKind { cross_entropy, mse, mae, huber, binary_cross_entropy, quantile };

// The quantity that training minimises: a mean over the global batch and, for all but
// cross_entropy, over the outputs. Equations: ridgeline/ops/loss.h. Fields that the kind does not
// use keep their defaults.
struct Loss {
  LossKind kind = LossKind::cross_entropy;
  // cross_entropy: one weight per class, or none; balanced: samples / (classes * samples of the
  // class), which training computes from its labels. An evaluation applies neither weights nor
  // smoothing.
  std::vector<double> weights{};
  bool balanced = false;
  double smoothing = 0;
  double delta = 1;                  // huber: the bound of its quadratic part
  std::vector<double> pos_weight{};  // binary_cross_entropy: one for all outputs, or one each
  std::vector<double> quantiles{};   // quantile: each target has one output per quantile

  bool operator==(const Loss&) const = default;
};

std::string_view name(LossKind kind);  // "cross-entropy", "mse", ...

// Whether it takes labels only; the other losses compare with numbers, and treat labels as one-hot
// rows.
constexpr bool wants_labels(LossKind kind) { return kind == LossKind::cross_entropy; }

// "mae", or { type = "huber", delta = 1.0 }
Loss read_loss(ConfigTable& parent, const std::string& key);
std::string to_toml(const Loss& loss);

// Returns the class weights of `balanced`. A class without samples has the weight 1.
std::vector<double> balanced_weights(const std::vector<int64_t>& samples_of_class);

}  // namespace ridgeline::nn
