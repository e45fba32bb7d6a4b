#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/window.h"

namespace ridgeline::cuda {

// The founding convolutions in fp32: a thread for each output, the filters in constant memory. Each
// level adds one step to the one before.
enum class ConvLevel {
  constant_mask,  // sums go to memory tap by tap
  register_sums,  // a sum stays in a register until it is complete
  unrolled,       // the loops over a filter of known size are unrolled
};

// Why a geometry is not taken; null when it is.
const char* refuse_conv_level(const ConvGeometry& g, ConvLevel level);
// The constant memory is one a device: runs on several streams of one process must not meet.
cudaError_t launch_conv_level(const ConvGeometry& g, ConvLevel level, const float* x,
                              const float* w, const float* b, float* y, cudaStream_t stream);

}  // namespace ridgeline::cuda
