#pragma once

#include <memory>

#include "ridgeline/core/uploader.h"
#include "ridgeline/cuda/runtime.h"

namespace ridgeline::cuda {

// Two pinned blocks and two of the GPU's, copied on a stream of their own.
std::unique_ptr<Uploader> make_uploader(CudaRuntime& runtime, size_t bytes);

// Bytes a second of the fastest of several large copies between pinned memory and the GPU.
double pinned_copy_rate(CudaRuntime& runtime, bool to_gpu);

}  // namespace ridgeline::cuda
