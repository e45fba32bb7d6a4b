#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// "cuda.<op>.cublaslt.<i>": the library's i-th proposal for each product, so that the planner times
// them. Refused with the reason where the library is absent or has no such proposal.
KernelTable cublaslt_kernels();

// "cuda.conv2d*.cudnn.<i>": the same of cuDNN's heuristics for convolutions; none where the build
// found no headers of it.
KernelTable cudnn_kernels();

// "cuda.rnn.cudnn.<algorithm>": a recurrent layer for inference; "cuda.rnn_training.cudnn.<...>":
// its forward and backward ops where they stand side by side. With `halves` those of bf16 and fp16,
// "cudnn_half", which round the product with x before they add the one with h: peers to measure
// with, not for plans.
KernelTable cudnn_rnn_kernels(bool halves);

}  // namespace ridgeline::cuda
