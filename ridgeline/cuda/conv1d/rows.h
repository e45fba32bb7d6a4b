#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// Networks over signals of many channels (texts), with activations as rows of channels between the
// rows for inference (cuda/conv1d):
//   "cuda.one_hot_norm_relu_pool.gather"   the first block, from codes
//   "cuda.conv1d.wgmma"                    convolution, relu and pool of 3 if they follow; halves
//                                          and tf32
//   "cuda.conv1d.fp32"                     the same in fp32 multiply-adds
//   "cuda.norm_relu_pool.rows"             the end of the last block
//   "cuda.conv1d_chain_norm_relu_pool.wgmma"   all convolutions of 3 taps and the end of the last
//                                          block; halves (signal_chain_rows)
//   "cuda.turn_signal.plain"               between plain signals and rows of channels
Table signal_rows();
Table signal_chain_rows();

// Their training, on plain signals:
//   "cuda.relu_pool.threes", "cuda.pool_relu_grad.threes"   pools of 3 and the relu before them
//   "cuda.one_hot_conv1d_grad_w.tensor"                     halves; the one-hot factor in registers
//   "cuda.conv1d_grad_[x|w].tensor"                         gradients of a convolution in halves
Table signal_training_rows();

}  // namespace ridgeline::cuda
