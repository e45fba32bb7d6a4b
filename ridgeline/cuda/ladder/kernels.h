#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Levels of the ladders that later kernels have overtaken. All are demonstrations.
KernelTable ladder_kernels();

}  // namespace ridgeline::cuda
