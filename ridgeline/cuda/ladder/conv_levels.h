#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/window.h"

namespace ridgeline::cuda {

// The convolutions of the founding work (docs/founding.md) in fp32: one thread per output, with the
// filters in constant memory. Each level adds one technique to the previous level.
enum class ConvLevel {
  constant_mask,  // sums go to global memory tap by tap
  register_sums,  // a sum stays in a register until it is complete
  unrolled,       // the loops over a filter of known size are unrolled
};

// Why a geometry is not taken; null if it is.
const char* refuse_conv_level(const ConvGeometry& g, ConvLevel level);
// There is one constant memory per device, so runs on several streams of a process must not
// overlap.
cudaError_t launch_conv_level(const ConvGeometry& g, ConvLevel level, const float* x,
                              const float* w, const float* b, float* y, cudaStream_t stream);

}  // namespace ridgeline::cuda
