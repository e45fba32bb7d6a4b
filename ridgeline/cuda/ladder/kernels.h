#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Earlier levels of the ladders, which later kernels have overtaken. All are demonstrations.
KernelTable ladder_kernels();

}  // namespace ridgeline::cuda
