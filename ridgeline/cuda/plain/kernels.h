#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// "cuda.<op>.plain": every op, every float type, any architecture; and spans that gain from fusion.
// One file per family.
KernelTable plain_batch_kernels();    // gathers, activation, dropout
KernelTable plain_linear_kernels();   // linear and its gradients
KernelTable plain_loss_kernels();     // losses, softmax
KernelTable head_grads_kernels();     // a last layer, its loss and their gradients
KernelTable plain_update_kernels();   // optimizers, global_norm, tick
KernelTable plain_conv_kernels();     // conv2d and its gradients
KernelTable unrolled_conv_kernels();  // the same as products of unrolled taps, "cuda.<op>.unrolled"
KernelTable plain_pool_kernels();     // pools, alone or with an activation
KernelTable plain_group_norm_kernels();  // group and RMS normalisation
KernelTable plain_join_kernels();        // sums, products and concatenations
KernelTable plain_rearrange_kernels();   // slices, paddings, transpositions, enlargements
KernelTable plain_text_kernels();        // one-hot convolutions
// Embeddings, a timestep of a sequence, copies.
KernelTable plain_sequence_kernels();

}  // namespace ridgeline::cuda
