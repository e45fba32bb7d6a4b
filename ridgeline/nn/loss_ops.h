#pragma once

#include "ridgeline/nn/loss.h"
#include "ridgeline/nn/model.h"
#include "ridgeline/ops/op.h"

namespace ridgeline::nn {

// Returns the constants that the ops of a loss read as a value of the program: class weights,
// weights of positive targets or quantiles. Empty if there are none.
std::vector<double> loss_constants(const Loss& loss);

// The number of a target's elements that the loss averages over: all outputs, or one for
// cross-entropy.
int64_t averaged_outputs(const Loss& loss, int64_t outputs);

// The number of columns of a sample's target for this many outputs: quantiles share one.
int64_t target_columns(const Loss& loss, int64_t outputs);
// The number of columns of all heads of a model together.
int64_t head_columns(const Model& model);

// The operands of a batch's loss and of its gradient.
struct LossOperands {
  Value x;       // [n, outputs]
  Value target;  // [n] int32, or [n, columns] float
  Value constants;
  Value tick;
  Value loss_scale;  // of the gradient, optional
  double scale = 1;
  Value sample_weights{};  // [samples], optional; n is a multiple of them
};

// The mean square of weighted samples is twice a Huber loss without a linear part.
Op loss_op(const Loss& loss, const LossOperands& operands, const Value& result,
           const Value& correct);
Op loss_grad_op(const Loss& loss, const LossOperands& operands, const Value& dx);

// Throws Error(usage) if the loss does not fit `outputs`.
void check_loss(const Loss& loss, int64_t outputs);

}  // namespace ridgeline::nn
