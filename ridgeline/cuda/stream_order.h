#pragma once

#include "ridgeline/cuda/runtime.h"

// Order between the stream of a runtime and streams of other code in this process. A stream is
// given as CUDA's own handle; 1 and 2 are CUDA's names of the two default streams.
namespace ridgeline::cuda {

// Later work of this runtime waits for the work enqueued on `stream` so far.
void wait_for_stream(const CudaRuntime& runtime, void* stream);
// Later work on `stream` waits for the work of this runtime so far.
void let_stream_wait(const CudaRuntime& runtime, void* stream);
// Returns when the work enqueued on `stream` of that GPU is complete.
void wait_on_host(int gpu, void* stream);

}  // namespace ridgeline::cuda
