#pragma once

#include "ridgeline/nn/lower.h"

namespace ridgeline::nn {

// Throws an Error for options of which no program can be made, at all or for this model.
void check_lowering(const Model& model, const LowerOptions& options);

}  // namespace ridgeline::nn
