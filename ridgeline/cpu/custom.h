#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu {

// Kernels of custom layers, which compute a whole batch in fp32 in one call.
KernelTable custom_kernels();

}  // namespace ridgeline::cpu
