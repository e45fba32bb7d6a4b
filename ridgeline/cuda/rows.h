#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// Every row for NVIDIA GPUs, in the fixed order of preference: fused before single, the vendor's
// products before our plain ones.
Table rows();

// Rows for benches only: the vendor's where they round between sums, so that plans leave them out.
Table peer_rows();

}  // namespace ridgeline::cuda
