#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Convolution, activation and pool in one kernel (cuda/conv). With a preceding gather, the kernel
// reads the gather's bytes:
//   "cuda.[gather_]conv2d_pool.direct"              one layer, fp32 multiply-adds
//   "cuda.[gather_]conv2d_pool_x2.fused_conv2.<i>"  two layers, tensor cores
//   "cuda.[gather_]conv_net.fused_lenet"            two such layers and two linear ones, halves
KernelTable conv_kernels();

// "cuda.conv2d_pool.implicit", "cuda.conv2d.implicit", "cuda.conv2d_grad_x.implicit",
// "cuda.conv2d_grad_w.implicit": implicit matrix products on tensor cores.
KernelTable implicit_conv_kernels();

// "cuda.[gather_]conv2d_pool.small_cin": a convolution of few input channels and the pool that
// follows it, on tensor cores.
KernelTable pooled_conv_kernels();

// "cuda.conv2d_pool.wgmma", "cuda.conv2d.wgmma", "cuda.conv2d_grad_x.wgmma": products by wgmma.
KernelTable wgmma_conv_kernels();

// Convolutions in fp32 multiply-adds, "cuda.conv2d_pool", "cuda.conv2d" and "cuda.conv2d_grad_x":
//   ".winograd1d"      one-dimensional Winograd along the rows of an image (ops/winograd1d.h)
//   ".register_tiled"  direct, with the sums of a strip of pixels in registers
KernelTable fp32_conv_kernels();
// "cuda.conv2d_grad_w.winograd1d", in fp32 multiply-adds.
KernelTable fp32_grad_w_kernels();

// The backward pass from the pool:
//   "cuda.pool_conv2d_grads.wgmma", ".implicit"  the gradients of the pool and the activation, and
//                                                both of the convolution
//   "cuda.pool_conv2d_grad_w.pool_sparse"        in the lowest layer, by multiply-adds over the
//                                                pixels that the pool selected
KernelTable conv_grads_kernels();

// The bytes of shared memory that a block may have on this GPU.
size_t shared_memory(const Runtime& runtime);

}  // namespace ridgeline::cuda
