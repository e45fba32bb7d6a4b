#pragma once

#include <cuda_runtime_api.h>

namespace ridgeline::cuda {

// to[i, column, row] = from[i, row, column] for `count` matrices: channels-first to channels-last,
// and back.
template <typename T>
cudaError_t launch_transpose(const T* from, T* to, int rows, int columns, int count,
                             cudaStream_t stream);

}  // namespace ridgeline::cuda
