#include "ridgeline/nn/loss.h"

#include <fmt/format.h>

#include <numeric>

namespace ridgeline::nn {
namespace {

constexpr std::pair<std::string_view, LossKind> kLossKinds[] = {
    {"cross-entropy", LossKind::cross_entropy},
    {"mse", LossKind::mse},
    {"mae", LossKind::mae},
    {"huber", LossKind::huber},
    {"binary-cross-entropy", LossKind::binary_cross_entropy},
    {"quantile", LossKind::quantile},
};

constexpr double kMostLossWeight = 1e12;  // far above any use, far below what overflows in fp32

std::string list(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) text += (text.empty() ? "" : ", ") + toml_number(number);
  return "[" + text + "]";
}

Loss read_table(ConfigTable table) {
  Loss loss;
  loss.kind = table.choice<LossKind>("type", std::nullopt, kLossKinds);
  switch (loss.kind) {
    case LossKind::cross_entropy:
      loss.balanced = table.is_text("weights");
      if (loss.balanced) {
        static constexpr std::string_view kBalanced[] = {"balanced"};
        table.choice("weights", std::nullopt, kBalanced);
      } else {
        loss.weights = table.numbers("weights", {}, {0.0, kMostLossWeight});
      }
      loss.smoothing = table.number("smoothing", 0.0, {0.0, kBelowOne});
      break;
    case LossKind::huber:
      loss.delta = table.number("delta", 1.0, {kPositive, kMostLossWeight});
      break;
    case LossKind::binary_cross_entropy:
      loss.pos_weight = table.numbers("pos_weight", {}, {0.0, kMostLossWeight});
      break;
    case LossKind::quantile:
      loss.quantiles = table.numbers("quantiles", {0.5}, {kPositive, kBelowOne});
      if (loss.quantiles.empty()) table.fail("quantiles", "is empty; give at least one");
      break;
    case LossKind::mse:
    case LossKind::mae:
      break;
  }
  table.finish();
  return loss;
}

}  // namespace

std::string_view name(LossKind kind) {
  for (const auto& [name, value] : kLossKinds) {
    if (value == kind) return name;
  }
  return "unknown";
}

Loss read_loss(ConfigTable& parent, const std::string& key) {
  if (parent.has(key) && !parent.is_text(key)) return read_table(parent.table(key));
  Loss loss;
  loss.kind = parent.choice<LossKind>(key, loss.kind, kLossKinds);
  if (loss.kind == LossKind::quantile) loss.quantiles = {0.5};
  return loss;
}

std::string to_toml(const Loss& loss) {
  std::string more;
  if (loss.balanced) more += ", weights = \"balanced\"";
  if (!loss.balanced && !loss.weights.empty()) more += ", weights = " + list(loss.weights);
  if (loss.smoothing != 0) more += ", smoothing = " + toml_number(loss.smoothing);
  if (loss.kind == LossKind::huber) more += ", delta = " + toml_number(loss.delta);
  if (!loss.pos_weight.empty()) more += ", pos_weight = " + list(loss.pos_weight);
  if (loss.kind == LossKind::quantile) more += ", quantiles = " + list(loss.quantiles);
  return more.empty() ? fmt::format("\"{}\"", name(loss.kind))
                      : fmt::format("{{ type = \"{}\"{} }}", name(loss.kind), more);
}

std::vector<double> balanced_weights(const std::vector<int64_t>& samples_of_class) {
  const auto classes = double(samples_of_class.size());
  const auto samples =
      double(std::accumulate(samples_of_class.begin(), samples_of_class.end(), int64_t{0}));
  std::vector<double> weights;
  for (const int64_t count : samples_of_class) {
    weights.push_back(count > 0 ? samples / (classes * double(count)) : 1.0);
  }
  return weights;
}

}  // namespace ridgeline::nn
