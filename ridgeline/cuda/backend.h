#pragma once

#include "ridgeline/plan/backend.h"

namespace ridgeline::cuda {

// Also there in a build without CUDA (cuda_unavailable.cpp): then it has no device and no kernel.
const Backend& backend();

}  // namespace ridgeline::cuda
