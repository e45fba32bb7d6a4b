#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Normalisations and their gradients: "cuda.<op>.cluster" by a cluster of blocks, which keep their
// input in shared memory, and "cuda.<op>.plain".
KernelTable norm_kernels();

}  // namespace ridgeline::cuda
