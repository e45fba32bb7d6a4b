#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Every kernel for NVIDIA GPUs, in the fixed order of preference: fused kernels before single ops,
// the vendor's products before our plain ones.
KernelTable kernels();

// Kernels for benches only: vendor kernels that round between sums, which plans therefore exclude.
KernelTable peer_kernels();

}  // namespace ridgeline::cuda
