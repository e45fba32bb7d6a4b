#pragma once

#include "ridgeline/cuda/plain/transpose.h"
#include "ridgeline/cuda/recurrent/operands.h"
#include "ridgeline/cuda/recurrent/product.h"
#include "ridgeline/cuda/recurrent/steps.h"

// Helpers of the kernels that loop over the timesteps.
namespace ridgeline::cuda::recurrent {

// The options in which the kernels of a loop differ.
struct LoopOptions {
  Multiplier by = Multiplier::cublaslt;
  bool gate_products = false;  // one product per gate; otherwise all gates in one
  bool apart = false;          // each gate's function in a launch of its own
  bool each_input = false;  // x's product one timestep at a time; otherwise all timesteps at once
  bool streams = false;     // x's products concurrently with the loop, on a second stream
  bool transposed = false;  // transposes the recurrent weights first, once per pass
  bool added = false;       // adds h's product to x's in place
  int proposal = 0;         // which of cuBLASLt's proposals to use for the product of a timestep
};

inline cudaError_t run_all(const std::vector<Multiply>& products, int64_t place,
                           cudaStream_t stream) {
  for (const Multiply& product : products) {
    if (const cudaError_t error = product(place, stream); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

#define RIDGELINE_RETURN_IF_FAILED(call) \
  if (const cudaError_t error = (call); error != cudaSuccess) return error

// "cuda.rnn.<how>" and "cuda.rnn_grad.<how>".
Kernel loop_forward_kernel(const char* how, const LoopOptions& options);
Kernel loop_backward_kernel(const char* how, const LoopOptions& options);

}  // namespace ridgeline::cuda::recurrent
