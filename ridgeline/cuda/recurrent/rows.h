#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// "cuda.rnn.persistent" and "cuda.rnn_grad.persistent": a whole pass in one launch, weights on
// chip.
Table rnn_persistent_rows();
// "cuda.rnn_stack.wavefront": several layers in one launch, each a step behind the one below.
Table rnn_stack_rows();
// "cuda.rnn.<how>" and "cuda.rnn_grad.<how>": a loop over the steps of products and what stands
// between them, from a product a gate to all inputs in one; every float type, lengths, states.
Table rnn_loop_rows();
// "cuda.rnn_grad_x.<how>" and "cuda.rnn_grad_w.<how>": the large products after the loop.
Table rnn_product_rows();

}  // namespace ridgeline::cuda
