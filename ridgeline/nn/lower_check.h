#pragma once

#include "ridgeline/nn/lower.h"

namespace ridgeline::nn {

// Refuses, with an Error, options that no program can be made of, or not of this model.
void check_lowering(const Model& model, const LowerOptions& options);

}  // namespace ridgeline::nn
