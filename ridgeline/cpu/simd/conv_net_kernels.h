#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu::simd {

// The convolutions and pools of a net, with weights that are packed when the kernel is prepared.
KernelTable conv_net_kernels();

}  // namespace ridgeline::cpu::simd
