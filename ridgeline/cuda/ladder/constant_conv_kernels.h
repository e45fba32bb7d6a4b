#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// "cuda.conv2d.constant": filters in constant memory, for demonstrations.
KernelTable constant_conv_kernels();

}  // namespace ridgeline::cuda
