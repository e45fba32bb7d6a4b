#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/window.h"

namespace ridgeline::cuda {

// A convolution in fp32 with the filters in constant memory, where one read serves all lanes of a
// warp. A block takes a tile of an image's outputs by 4, 8 or 12 channels; a thread takes four rows
// of one column and keeps its sums in registers. The tile's input is in shared memory, one channel
// at a time. Before every run the filters are copied to constant memory in stream order, in as many
// parts as they need. There is one such memory per device, so runs on several streams of a process
// must not overlap. Any stride, padding and dilation; one group.
const char* refuse_conv2d_constant(const ConvGeometry& g);
cudaError_t launch_conv2d_constant(const ConvGeometry& g, const float* x, const float* w,
                                   const float* b, float* y, cudaStream_t stream);

}  // namespace ridgeline::cuda
