#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// "cuda.mlp_train.<how>": a whole program of training steps in one launch, in half precision.
KernelTable mlp_train_kernels();

}  // namespace ridgeline::cuda
