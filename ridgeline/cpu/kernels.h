#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu {

// Every kernel for the CPU, in the fixed order of preference: ours, the vendor's, the reference.
KernelTable kernels();
// Kernels that read weights when they are prepared, for programs whose weights never change.
KernelTable inference_kernels();

}  // namespace ridgeline::cpu
