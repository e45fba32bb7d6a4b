#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Whole training steps of one hidden layer over bytes, in fp32 and fp64 (int8_split/int8_split.h).
KernelTable mlp_int8_split_kernels();

}  // namespace ridgeline::cuda
