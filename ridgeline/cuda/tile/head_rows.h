#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// The top of a classifier, from its last linear layer to the gradient of what lies below, updates
// included, in two kernels (tile/head.h).
Table head_rows();

}  // namespace ridgeline::cuda
