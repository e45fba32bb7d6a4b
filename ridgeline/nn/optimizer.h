#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/nn/config_table.h"

namespace ridgeline::nn {

enum class OptimizerKind { sgd, adam, adamw };

// Equations: ridgeline/ops/update.h. Fields that the kind does not use keep their defaults.
struct Optimizer {
  OptimizerKind kind = OptimizerKind::sgd;
  double lr = 0.01;                                   // before the schedule
  double weight_decay = 0;                            // L2 for sgd and adam, decoupled for adamw
  double momentum = 0;                                // sgd
  bool nesterov = false;                              // sgd
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // adam, adamw

  bool operator==(const Optimizer&) const = default;
};

std::string_view name(OptimizerKind kind);

// The state kept for each weight, with the weight's shape, in fp32 (fp64 in an fp64 run), zero at
// the start:
// {"momentum"}, {"m", "v"} or nothing.
std::vector<std::string> state_names(const Optimizer& optimizer);

Optimizer read_optimizer(ConfigTable& parent, const std::string& key);
std::string to_toml(const Optimizer& optimizer);  // { type = "sgd", lr = 0.01, ... }

}  // namespace ridgeline::nn
