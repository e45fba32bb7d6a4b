#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu {

// One kernel for each op, "cpu.<op>.reference", for every float dtype: plain loops that compute in
// double and round once, at the store. Every other kernel is compared with them.
KernelTable reference_kernels();

}  // namespace ridgeline::cpu
