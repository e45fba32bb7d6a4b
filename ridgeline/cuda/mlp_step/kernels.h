#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// A whole training step of a multilayer perceptron in a few tiled launches (tile/tile.h), for
// batches too large to keep a step on chip.
KernelTable mlp_step_kernels();

}  // namespace ridgeline::cuda
