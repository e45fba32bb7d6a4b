#pragma once

#include <memory>

#include "ridgeline/core/uploader.h"
#include "ridgeline/cuda/runtime.h"

namespace ridgeline::cuda {

// Two pinned blocks and two of the GPU's, copied on a stream of their own.
std::unique_ptr<Uploader> make_uploader(CudaRuntime& runtime, size_t bytes);

}  // namespace ridgeline::cuda
