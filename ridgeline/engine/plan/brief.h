#pragma once

#include <string>

#include "ridgeline/nn/lower.h"
#include "ridgeline/nn/model.h"
#include "ridgeline/plan/plan.h"
#include "ridgeline/plan/planner.h"

namespace ridgeline::engine {

// Returns a line for each chosen kernel: its time, its layers, its name, and its gain over the next
// best way of computing the same ops.
std::string brief_plan(const nn::Lowered& lowered, const nn::Model& model, const Plan& plan,
                       const Explanation& explanation);

}  // namespace ridgeline::engine
