#pragma once

#include "ridgeline/plan/backend.h"

namespace ridgeline::cuda {

// A build without CUDA defines this too (cuda_unavailable.cpp), with no devices and no kernels.
const Backend& backend();

}  // namespace ridgeline::cuda
