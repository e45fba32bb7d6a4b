#pragma once

#include <array>

#include "ridgeline/plan/plan.h"

namespace ridgeline::prof {

// The parts of a step: up to the loss; gradients; what changes weights and counters; what travels
// between ranks.
enum class Pass { forward, backward, update, exchange };
constexpr int kPasses = 4;
const char* name(Pass pass);

// By op. Everything behind the first gradient is the backward pass, also sums of gradients and
// masks, which are ops of the forward pass elsewhere.
std::vector<Pass> passes_of(const Program& program);

// Products of matrices: linear layers, convolutions, recurrent layers and their gradients.
bool is_product(const Op& op);

struct PassCost {
  double flops = 0, bytes = 0;  // each op by itself
  double seconds = 0;           // of kernels that lie in this pass alone
};

struct StepCost {
  std::array<PassCost, kPasses> passes;
  double product_flops = 0;
  double joined_seconds = 0;   // of kernels that reach over several passes
  double product_seconds = 0;  // of kernels with products in them

  double flops() const;
};
StepCost cost_of(const Program& program);  // without seconds

}  // namespace ridgeline::prof
