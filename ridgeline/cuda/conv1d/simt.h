#pragma once

#include "ridgeline/cuda/conv1d/conv1d.h"

namespace ridgeline::cuda {

// The convolution of conv1d.h in fp32 multiply-adds.
std::string refuse_conv1d_fp32(int pitch, int channels, int out, int taps, int pool);
cudaError_t launch_conv1d_fp32(const Conv1dArgs<float>& args, void* workspace, cudaStream_t stream);

}  // namespace ridgeline::cuda
