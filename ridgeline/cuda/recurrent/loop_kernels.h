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
  bool gate_products = false;  // a product a gate; else all gates in one
  bool apart = false;          // each gate's function in a launch of its own
  bool each_input = false;     // x's product a step at a time; else of all steps at once
  bool streams = false;        // x's products beside the loop, on a second stream
  bool transposed = false;     // the recurrent weights transposed first, once a pass
  bool added = false;          // h's product added to x's where that lies
  int proposal = 0;            // which of cuBLASLt's for the product of a step
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
