#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// The top of a classifier, from its last linear layer to the gradient of that layer's input,
// including updates, in two launches (tile/head.h).
KernelTable head_kernels();

}  // namespace ridgeline::cuda
