#include "ridgeline/nn/optimizer.h"

#include <fmt/format.h>

namespace ridgeline::nn {
namespace {

constexpr std::pair<std::string_view, OptimizerKind> kOptimizerKinds[] = {
    {"sgd", OptimizerKind::sgd},
    {"adam", OptimizerKind::adam},
    {"adamw", OptimizerKind::adamw},
};

Optimizer with_defaults(OptimizerKind kind) {
  Optimizer optimizer{.kind = kind};
  if (kind != OptimizerKind::sgd) optimizer.lr = 0.001;
  if (kind == OptimizerKind::adamw) optimizer.weight_decay = 0.01;
  return optimizer;
}

}  // namespace

std::string_view name(OptimizerKind kind) {
  for (const auto& [name, value] : kOptimizerKinds) {
    if (value == kind) return name;
  }
  return "unknown";
}

std::vector<std::string> state_names(const Optimizer& optimizer) {
  if (optimizer.kind != OptimizerKind::sgd) return {"m", "v"};
  if (optimizer.momentum != 0) return {"momentum"};
  return {};
}

// Defaults are PyTorch's, but for sgd's lr, which has none there before version 2.
Optimizer read_optimizer(ConfigTable& parent, const std::string& key) {
  if (parent.has(key) && parent.is_text(key)) {
    return with_defaults(parent.choice<OptimizerKind>(key, OptimizerKind::sgd, kOptimizerKinds));
  }
  ConfigTable table = parent.table(key);
  Optimizer optimizer =
      with_defaults(table.choice<OptimizerKind>("type", OptimizerKind::sgd, kOptimizerKinds));
  optimizer.lr = table.number("lr", optimizer.lr, {kPositive});
  optimizer.weight_decay = table.number("weight_decay", optimizer.weight_decay, {0.0});
  if (optimizer.kind == OptimizerKind::sgd) {
    optimizer.momentum = table.number("momentum", 0.0, {0.0, kBelowOne});
    optimizer.nesterov = table.boolean("nesterov", false);
    if (optimizer.nesterov && optimizer.momentum == 0) {
      table.fail("nesterov", "needs a momentum greater than 0");
    }
  } else {
    optimizer.beta1 = table.number("beta1", 0.9, {0.0, kBelowOne});
    optimizer.beta2 = table.number("beta2", 0.999, {0.0, kBelowOne});
    optimizer.epsilon = table.number("epsilon", 1e-8, {kPositive});
  }
  table.finish();
  return optimizer;
}

std::string to_toml(const Optimizer& optimizer) {
  std::string text =
      fmt::format("{{ type = \"{}\", lr = {}, weight_decay = {}", name(optimizer.kind),
                  toml_number(optimizer.lr), toml_number(optimizer.weight_decay));
  if (optimizer.kind == OptimizerKind::sgd) {
    text += fmt::format(", momentum = {}, nesterov = {}", toml_number(optimizer.momentum),
                        optimizer.nesterov);
  } else {
    text += fmt::format(", beta1 = {}, beta2 = {}, epsilon = {}", toml_number(optimizer.beta1),
                        toml_number(optimizer.beta2), toml_number(optimizer.epsilon));
  }
  return text + " }";
}

}  // namespace ridgeline::nn
