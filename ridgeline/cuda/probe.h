#pragma once

#include <cuda_runtime_api.h>

#include <vector>

namespace ridgeline::cuda {

// The architectures that this build has machine code for, as 10 * major + minor.
std::vector<int> compiled_architectures();

// Whether the current device can load this build's kernels; cudaErrorNoKernelImageForDevice if not.
cudaError_t probe_kernels();

}  // namespace ridgeline::cuda
