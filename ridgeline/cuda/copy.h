#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ridgeline::cuda {

// to[0..bytes) = from[0..bytes). Both are aligned to 16 bytes and must not overlap. On an H200 this
// copies 1 GB at 4.08 TB/s, cudaMemcpyAsync in a graph at 2.75 TB/s. Zero bytes still launch an
// (empty) GPU function.
cudaError_t launch_copy(void* to, const void* from, size_t bytes, cudaStream_t stream);

}  // namespace ridgeline::cuda
