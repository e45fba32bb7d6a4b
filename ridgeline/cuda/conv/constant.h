#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/window.h"

namespace ridgeline::cuda {

// A convolution in fp32 with the filters in constant memory: one thread a pixel and eight channels,
// their sums in registers. The filters are copied there in front of every run, in the stream's
// order; the memory is one a device, so runs on several streams of one process must not meet.
constexpr int kMostConstantWeights = 64 * 1024 / 4;

cudaError_t launch_conv2d_constant(const ConvGeometry& g, const float* x, const float* w,
                                   const float* b, float* y, cudaStream_t stream);

}  // namespace ridgeline::cuda
