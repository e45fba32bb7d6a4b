#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// "cuda.rnn.persistent" and "cuda.rnn_grad.persistent": a whole pass in one launch, with the
// weights on chip.
KernelTable rnn_persistent_kernels();
// "cuda.rnn.batch_parallel" and "cuda.rnn_grad.batch_parallel": a whole pass of a small layer in
// one launch, in which blocks of different samples never wait for each other.
KernelTable rnn_batch_parallel_kernels();
// "cuda.rnn_stack.wavefront": several layers in one launch, each a timestep behind the one below.
KernelTable rnn_stack_kernels();
// "cuda.rnn.<how>" and "cuda.rnn_grad.<how>": a loop over the timesteps of products and the
// functions between them, from one product per gate to one product for all inputs; every float
// type, lengths, states.
KernelTable rnn_loop_kernels();
// "cuda.rnn_classifier.batch_parallel": a small layer, the head of a classifier on one of its
// timesteps, and the backward pass of both.
KernelTable rnn_classifier_kernels();
// "cuda.rnn_grad_w.split_k": all gradients of a small layer's weights in one launch.
KernelTable rnn_split_k_kernels();
// "cuda.rnn_grad_x.<how>" and "cuda.rnn_grad_w.<how>": the large products after the loop.
KernelTable rnn_product_kernels();
// "cuda.rnn.cudnn.<algorithm>": a recurrent layer for inference; "cuda.rnn_training.cudnn.<...>":
// its forward and backward ops if they are adjacent. With `halves` those of bf16 and fp16,
// "cudnn_half", which round the product with x before they add the one with h: they are peers for
// comparisons and not for plans.
KernelTable cudnn_rnn_kernels(bool halves);

}  // namespace ridgeline::cuda
