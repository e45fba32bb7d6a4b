#pragma once

#include <array>

#include "ridgeline/plan/plan.h"

namespace ridgeline::prof {

// The parts of a step: up to the loss; gradients; updates of weights and counters; communication
// between ranks.
enum class Pass { forward, backward, update, exchange };
constexpr int kPasses = 4;
const char* name(Pass pass);

// Returns the pass of each op. Everything after the first gradient is the backward pass, including
// sums of gradients and masks, which elsewhere are ops of the forward pass.
std::vector<Pass> passes_of(const Program& program);

// Products of matrices: linear layers, convolutions, recurrent layers and their gradients.
bool is_product(const Op& op);

struct PassCost {
  double flops = 0, bytes = 0;  // each op by itself
  double seconds = 0;           // of kernels within this pass only
};

struct StepCost {
  std::array<PassCost, kPasses> passes;
  double product_flops = 0;
  double joined_seconds = 0;   // of kernels that span several passes
  double product_seconds = 0;  // of kernels with products in them

  double flops() const;
};
StepCost cost_of(const Program& program);  // without seconds

}  // namespace ridgeline::prof
