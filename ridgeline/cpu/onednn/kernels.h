#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu {

// The kernels that call oneDNN or use its layouts, fp32. Empty in a build without oneDNN.
KernelTable onednn_kernels();
KernelTable onednn_recurrent_kernels();
// Our own of long spans on oneDNN's blocked images. They come first, so that their plan is always
// measured as a whole: by themselves, with all operands in a cache, shorter ones may seem faster.
KernelTable blocked_kernels();
// Kernels that read weights when they are prepared.
KernelTable onednn_fixed_kernels();

// The kernels of each family; each family has one file.
KernelTable onednn_linear_kernels();
KernelTable onednn_fixed_linear_kernels();
KernelTable onednn_conv_kernels();
KernelTable onednn_fixed_conv_kernels();
KernelTable onednn_pool_kernels();
KernelTable onednn_norm_kernels();
// Our own, on oneDNN's blocked images.
KernelTable blocked_norm_kernels();
KernelTable blocked_norm_grad_kernels();  // part of blocked_norm_kernels
KernelTable blocked_conv_kernels();

}  // namespace ridgeline::cpu
