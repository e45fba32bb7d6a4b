#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// A whole training step of a multilayer perceptron in a few kernels of tiles (tile/tile.h), for
// batches too large to keep a step on chip.
KernelTable mlp_step_kernels();

}  // namespace ridgeline::cuda
