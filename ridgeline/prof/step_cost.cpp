#include "ridgeline/prof/step_cost.h"

#include <string_view>

namespace ridgeline::prof {

const char* name(Pass pass) {
  constexpr const char* kNames[kPasses] = {"forward", "backward", "update", "exchange"};
  return kNames[size_t(pass)];
}

std::vector<Pass> passes_of(const Program& program) {
  std::vector<Pass> passes;
  bool behind_loss = false;
  for (const Op& op : program.ops) {
    const std::string_view text = ridgeline::name(op);
    behind_loss = behind_loss || text.find("_grad") != std::string_view::npos;
    if (std::holds_alternative<AllReduceStart>(op) || std::holds_alternative<AllReduceWait>(op)) {
      passes.push_back(Pass::exchange);
    } else if (std::holds_alternative<SgdUpdate>(op) || std::holds_alternative<AdamUpdate>(op) ||
               std::holds_alternative<GlobalNorm>(op) || std::holds_alternative<Tick>(op)) {
      passes.push_back(Pass::update);
    } else {
      passes.push_back(behind_loss ? Pass::backward : Pass::forward);
    }
  }
  return passes;
}

bool is_product(const Op& op) {
  const std::string_view text = ridgeline::name(op);
  for (const std::string_view family : {"linear", "conv2d", "one_hot_conv1d", "rnn"}) {
    if (text.starts_with(family)) return true;
  }
  return false;
}

double StepCost::flops() const {
  double sum = 0;
  for (const PassCost& pass : passes) sum += pass.flops;
  return sum;
}

StepCost cost_of(const Program& program) {
  StepCost cost;
  const std::vector<Pass> passes = passes_of(program);
  for (size_t i = 0; i < passes.size(); ++i) {
    PassCost& pass = cost.passes[size_t(passes[i])];
    pass.flops += flops(program.ops[i]);
    pass.bytes += bytes(program.ops[i]);
    if (is_product(program.ops[i])) cost.product_flops += flops(program.ops[i]);
  }
  return cost;
}

}  // namespace ridgeline::prof
