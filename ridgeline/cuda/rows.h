#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// Every row for NVIDIA GPUs, in the fixed order of preference: fused before single, the vendor's
// products before our plain ones.
Table rows();

}  // namespace ridgeline::cuda
