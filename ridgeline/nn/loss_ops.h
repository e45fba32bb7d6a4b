#pragma once

#include "ridgeline/nn/loss.h"
#include "ridgeline/nn/model.h"
#include "ridgeline/ops/op.h"

namespace ridgeline::nn {

// The numbers that the ops of a loss read from a value of the program: class weights, weights of
// positive targets or quantiles. Empty: there are none.
std::vector<double> loss_constants(const Loss& loss);

// How many numbers of a target the loss is a mean over: all outputs, or one for cross-entropy.
int64_t averaged_outputs(const Loss& loss, int64_t outputs);

// How many values a sample's target has for so many outputs: quantiles share one.
int64_t target_columns(const Loss& loss, int64_t outputs);
// The same of all heads of a model together.
int64_t head_columns(const Model& model);

// What the loss of a batch and its gradient are computed from.
struct LossOperands {
  Value x;       // [n, outputs]
  Value target;  // [n] int32, or [n, columns] float
  Value constants;
  Value tick;
  Value loss_scale;  // of the gradient, optional
  double scale = 1;
};

Op loss_op(const Loss& loss, const LossOperands& operands, const Value& result,
           const Value& correct);
Op loss_grad_op(const Loss& loss, const LossOperands& operands, const Value& dx);

// Throws usage when the loss does not fit `outputs` of a target.
void check_loss(const Loss& loss, int64_t outputs);

}  // namespace ridgeline::nn
