#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// "cuda.<op>.cublaslt.<i>": the library's i-th proposal for each product, so that the planner times
// them. Refused with the reason where the library is absent or has no such proposal.
KernelTable cublaslt_kernels();

// "cuda.conv2d*.cudnn.<i>": the same of cuDNN's heuristics for convolutions; none where the build
// found no headers of it.
KernelTable cudnn_kernels();

}  // namespace ridgeline::cuda
