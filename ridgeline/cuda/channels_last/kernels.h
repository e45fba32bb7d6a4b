#pragma once

#include "ridgeline/plan/kernel.h"

// Kernels for half-precision rows of channels (format.h). Values stay in that layout from one
// convolution to the next, and from one gradient to the next.
namespace ridgeline::cuda {

// "cuda.conv2d[_relu|_add_relu|_relu_add].cudnn_channels_last.<i>",
// "cuda.conv2d_grad_x[_add].cudnn_channels_last.<i>", "cuda.conv2d_grad_w.cudnn_channels_last.<i>":
// cuDNN's proposals without transposed images, with the following ops in their epilogue. The table
// is empty if the build found no cuDNN headers.
KernelTable channels_last_conv_kernels();

// "cuda.conv2d_grad_w.implicit_channels_last": the gradient of 3 x 3 filters as an implicit product
// by wgmma
KernelTable channels_last_implicit_kernels();

// "cuda.conv2d_grad_w.unrolled[_whole]_channels_last.<i>": cuBLASLt's products of dy with unrolled
// taps (im2col)
KernelTable channels_last_unrolled_kernels();

// "cuda.batch_norm[_relu[_pool|_add]|_add_relu].channels_last" and
// "cuda.[[pool_]relu_]batch_norm_grad.channels_last"
KernelTable channels_last_norm_kernels();

// "cuda.max_pool.channels_last", ".max_pool_grad", ".add[_relu]", ".relu", ".relu_grad", and
// "cuda.transpose_image.plain", which converts between the layouts
KernelTable channels_last_image_kernels();

}  // namespace ridgeline::cuda
