#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Every kernel for NVIDIA GPUs, in the fixed order of preference: fused before single, the vendor's
// products before our plain ones.
KernelTable kernels();

// Kernels for benches only: the vendor's that round between sums, which plans therefore leave out.
KernelTable peer_kernels();

}  // namespace ridgeline::cuda
