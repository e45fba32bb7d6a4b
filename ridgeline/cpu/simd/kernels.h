#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu {

// Our own kernels, fp32 and fp64, on vectors of whatever width the machine has.
KernelTable simd_kernels();

}  // namespace ridgeline::cpu
