#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Inference of networks over signals of many channels (texts). Between these kernels activations
// are rows of channels (cuda/conv1d):
//   "cuda.one_hot_norm_relu_pool.gather"      the first block, from codes
//   "cuda.conv1d.wgmma"                       convolution, and relu and a pool of 3 if they follow;
//                                             halves and tf32
//   "cuda.conv1d.fp32"                        the same in fp32 multiply-adds
//   "cuda.norm_relu_pool.row_wise"            the end of the last block
//   "cuda.conv1d_chain_norm_relu_pool.wgmma"  all convolutions of 3 taps and the end of the last
//                                             block; halves (signal_chain_kernels)
//   "cuda.transpose_signal.plain"             converts between plain signals and rows of channels
KernelTable signal_kernels();
KernelTable signal_chain_kernels();

// The training of such networks, on plain signals:
//   "cuda.relu_pool.pool3", "cuda.pool_relu_grad.pool3"  pools of 3 and the relu before them
//   "cuda.one_hot_conv1d_grad_w.tensor"                  halves; the one-hot operand in registers
//   "cuda.conv1d_grad_[x|w].tensor"                      gradients of a convolution in halves
KernelTable signal_training_kernels();

}  // namespace ridgeline::cuda
