#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// Convolution, activation and pool in one kernel (cuda/conv), from a gather's bytes where one
// stands in front:
//   "cuda.[gather_]conv2d_pool.direct"           one layer, fp32 multiply-adds
//   "cuda.[gather_]conv2d_pool_twice.tensor.<i>" two layers, tensor cores
//   "cuda.[gather_]conv_net.whole"               two such layers and two linear ones, halves
Table conv_rows();

// "cuda.conv2d.constant": one convolution with its filters in constant memory, of which there is
// one for all.
Table constant_conv_rows();

// "cuda.conv2d_pool.implicit", "cuda.conv2d.implicit", "cuda.conv2d_grad_x.implicit",
// "cuda.conv2d_grad_w.implicit": implicit matrix products on tensor cores.
Table implicit_conv_rows();

// "cuda.[gather_]conv2d_pool.few": the same of few channels with the pool that follows.
Table pooled_conv_rows();

// "cuda.conv2d_pool.wgmma", "cuda.conv2d.wgmma", "cuda.conv2d_grad_x.wgmma": on warpgroup products.
Table wgmma_conv_rows();

// In fp32 multiply-adds: "cuda.conv2d_pool.toom", "cuda.conv2d.toom", "cuda.conv2d_grad_x.toom"
// with fewer of them along the rows, and the same ".strips" with as many as there are.
Table fp32_conv_rows();
// Likewise "cuda.conv2d_grad_w.toom" and "cuda.conv2d_grad_w.direct".
Table fp32_grad_w_rows();

// The way back from the pool:
//   "cuda.pool_conv2d_grads.wgmma", ".implicit"  the pool's, the activation's and both of the
//                                                convolution's gradients
//   "cuda.pool_conv2d_grad_w.windows"            in the lowest layer, by multiply-adds
Table conv_grads_rows();

// Bytes a block may have on this GPU.
size_t shared_memory(const Runtime& runtime);

}  // namespace ridgeline::cuda
