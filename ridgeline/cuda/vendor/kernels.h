#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// "cuda.<op>.cublaslt.<i>": cuBLASLt's i-th proposal for each product, which the planner measures.
// Refused with the reason if the library is absent or has no such proposal.
KernelTable cublaslt_kernels();

// "cuda.conv2d*.cudnn.<i>": likewise for cuDNN's heuristics for convolutions; empty if the build
// found no cuDNN headers.
KernelTable cudnn_kernels();

}  // namespace ridgeline::cuda
