#pragma once

#include "ridgeline/cuda/runtime.h"

// Order between the stream of a runtime and streams of other programs in this process. A stream is
// given as CUDA's own handle; 1 and 2 are its names of the two default streams.
namespace ridgeline::cuda {

// What this runtime is asked from now on waits for what was asked of `stream` so far.
void wait_for_stream(const CudaRuntime& runtime, void* stream);
// What `stream` is asked from now on waits for what was asked of this runtime so far.
void let_stream_wait(const CudaRuntime& runtime, void* stream);
// Returns when what was asked of `stream` of that GPU is done.
void wait_on_host(int gpu, void* stream);

}  // namespace ridgeline::cuda
