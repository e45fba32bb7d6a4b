#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ridgeline::cuda {

// to[0..bytes) = from[0..bytes); both aligned to 16 bytes and apart from each other. On an H200
// this copies 1 GB at 4.08 TB/s, cudaMemcpyAsync in a graph at 2.75. Of no bytes it is a kernel
// that does nothing.
cudaError_t launch_copy(void* to, const void* from, size_t bytes, cudaStream_t stream);

}  // namespace ridgeline::cuda
