#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "ridgeline/core/error.h"

namespace ridgeline::cuda {

// Throws Error(device) unless the call succeeded. `what` names the op and its shapes, or the call.
inline void check(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // clears the error, which the next call would report again
  throw_error(ErrorKind::device, "{}: the GPU reports {} ({})", what, cudaGetErrorString(error),
              cudaGetErrorName(error));
}

}  // namespace ridgeline::cuda
