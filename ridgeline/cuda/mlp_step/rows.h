#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// A whole training step of a multilayer perceptron in a few kernels of tiles (tile/tile.h), for
// batches too large to keep a step on chip.
Table mlp_step_rows();

}  // namespace ridgeline::cuda
