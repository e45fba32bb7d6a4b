#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/nn/config_table.h"

namespace ridgeline::nn {

enum class LossKind { cross_entropy, mse, mae, huber, binary_cross_entropy, quantile };

// What training lowers: a mean over the global batch and, for all but cross_entropy, over the
// outputs. Equations: ridgeline/ops/loss.h. Fields of another kind stay at their defaults.
struct Loss {
  LossKind kind = LossKind::cross_entropy;
  // cross_entropy: one weight a class, or none; balanced: samples / (classes * samples of the
  // class), which training works out from its labels. An evaluation weights and smooths nothing.
  std::vector<double> weights{};
  bool balanced = false;
  double smoothing = 0;
  double delta = 1;                  // huber: where the square ends
  std::vector<double> pos_weight{};  // binary_cross_entropy: one for all outputs, or one each
  std::vector<double> quantiles{};   // quantile: each target has one output for each of them

  bool operator==(const Loss&) const = default;
};

std::string_view name(LossKind kind);  // "cross-entropy", "mse", ...

// Whether labels are the only targets it takes; the others compare with numbers, for which labels
// stand as one-hot rows.
constexpr bool wants_labels(LossKind kind) { return kind == LossKind::cross_entropy; }

// "mae", or { type = "huber", delta = 1.0 }
Loss read_loss(ConfigTable& parent, const std::string& key);
std::string to_toml(const Loss& loss);

// The class weights that `balanced` stands for. A class without samples weighs 1.
std::vector<double> balanced_weights(const std::vector<int64_t>& samples_of_class);

}  // namespace ridgeline::nn
