#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/window.h"

namespace ridgeline::cuda {

// A convolution in fp32 with the filters in constant memory, where a warp reads one for all of its
// lanes: a block takes a tile of an image's outputs by 4, 8 or 12 channels, a thread four rows of
// one column, its sums in registers; the tile's input lies in shared memory, a channel at a time.
// The filters are arranged there in front of every run, in the stream's order, in as many parts as
// they need; the memory is one a device, so runs on several streams of one process must not meet.
// Any stride, padding and dilation; one group.
const char* refuse_conv2d_constant(const ConvGeometry& g);
cudaError_t launch_conv2d_constant(const ConvGeometry& g, const float* x, const float* w,
                                   const float* b, float* y, cudaStream_t stream);

}  // namespace ridgeline::cuda
