#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// "cuda.<op>.plain": every op, every float type, any architecture; and spans that gain from one
// kernel. One file a family.
Table plain_batch_rows();    // gathers, activation, dropout
Table plain_linear_rows();   // linear and its gradients
Table plain_loss_rows();     // losses, softmax
Table head_grads_rows();     // a last layer, its loss and their gradients
Table plain_update_rows();   // optimizers, global_norm, tick
Table plain_conv_rows();     // conv2d and its gradients
Table unrolled_conv_rows();  // the same as products of unrolled taps, "cuda.<op>.unrolled"
Table plain_pool_rows();     // pools, alone or with an activation
Table norm_rows();           // normalisations; of clusters too, "cuda.<op>.cluster"
Table plain_text_rows();     // one-hot convolutions
// Embeddings, a step of a sequence, copies.
Table plain_sequence_rows();

}  // namespace ridgeline::cuda
