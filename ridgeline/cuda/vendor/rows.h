#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// "cuda.<op>.cublaslt.<i>": the library's i-th proposal for each product, so that the planner times
// them. Refused with the reason where the library is absent or has no such proposal.
Table cublaslt_rows();

// "cuda.conv2d*.cudnn.<i>": the same of cuDNN's heuristics for convolutions; none where the build
// found no headers of it.
Table cudnn_rows();

}  // namespace ridgeline::cuda
