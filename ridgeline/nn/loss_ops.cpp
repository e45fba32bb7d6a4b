#include "ridgeline/nn/loss_ops.h"

#include <fmt/format.h>

#include <limits>

#include "ridgeline/core/error.h"

namespace ridgeline::nn {
namespace {

struct Elementwise {
  LossFn fn;
  double scale, delta;
};

Elementwise elementwise(const Loss& loss, double scale) {
  switch (loss.kind) {
    case LossKind::mae:
      return {LossFn::mae, scale, loss.delta};
    case LossKind::huber:
      return {LossFn::huber, scale, loss.delta};
    case LossKind::mse:
      return {LossFn::huber, 2 * scale, std::numeric_limits<double>::infinity()};
    case LossKind::binary_cross_entropy:
      return {LossFn::bce_with_logits, scale, loss.delta};
    case LossKind::quantile:
      return {LossFn::quantile, scale, loss.delta};
    case LossKind::cross_entropy:
      break;
  }
  throw_error(ErrorKind::usage, "{} is not a loss of single elements", name(loss.kind));
}

}  // namespace

std::vector<double> loss_constants(const Loss& loss) {
  switch (loss.kind) {
    case LossKind::cross_entropy:
      return loss.weights;
    case LossKind::binary_cross_entropy:
      return loss.pos_weight;
    case LossKind::quantile:
      return loss.quantiles;
    case LossKind::mse:
    case LossKind::mae:
    case LossKind::huber:
      break;
  }
  return {};
}

int64_t averaged_outputs(const Loss& loss, int64_t outputs) {
  return loss.kind == LossKind::cross_entropy ? 1 : outputs;
}

int64_t target_columns(const Loss& loss, int64_t outputs) {
  return loss.kind == LossKind::quantile ? outputs / int64_t(loss.quantiles.size()) : outputs;
}

int64_t head_columns(const Model& model) {
  int64_t columns = 0;
  for (const Head& head : model.graph().heads()) {
    columns += target_columns(head.loss, model.output_of(head.layer).numel());
  }
  return columns;
}

Op loss_op(const Loss& loss, const LossOperands& o, const Value& result, const Value& correct) {
  if (loss.kind == LossKind::cross_entropy) {
    return SoftmaxXent{o.x,     o.target,    o.tick,         result,          correct,
                       o.scale, o.constants, loss.smoothing, o.sample_weights};
  }
  if (loss.kind == LossKind::mse && !o.sample_weights) {
    return Mse{o.x, o.target, o.tick, result, correct, o.scale};
  }
  const Elementwise of = elementwise(loss, o.scale);
  return ElementwiseLoss{of.fn,  o.x,     o.target, o.constants, o.tick,
                         result, correct, of.scale, of.delta,    o.sample_weights};
}

Op loss_grad_op(const Loss& loss, const LossOperands& o, const Value& dx) {
  if (loss.kind == LossKind::cross_entropy) {
    return SoftmaxXentGrad{
        o.x, o.target, dx, o.scale, o.loss_scale, o.constants, loss.smoothing, o.sample_weights};
  }
  if (loss.kind == LossKind::mse && !o.sample_weights) {
    return MseGrad{o.x, o.target, dx, o.scale, o.loss_scale};
  }
  const Elementwise of = elementwise(loss, o.scale);
  return ElementwiseLossGrad{of.fn,    o.x,      o.target,     o.constants,     dx,
                             of.scale, of.delta, o.loss_scale, o.sample_weights};
}

void check_loss(const Loss& loss, int64_t outputs) {
  const auto one_each = [&](const std::vector<double>& numbers, const char* key,
                            const char* outputs_are) {
    if (numbers.empty() || int64_t(numbers.size()) == outputs) return;
    throw_error(ErrorKind::usage, "train.loss.{} has {} numbers, but the model has {} {}", key,
                numbers.size(), outputs, outputs_are);
  };
  one_each(loss.weights, "weights", "classes");
  if (loss.pos_weight.size() > 1) one_each(loss.pos_weight, "pos_weight", "outputs");
  if (loss.kind == LossKind::quantile && outputs % int64_t(loss.quantiles.size()) != 0) {
    throw_error(ErrorKind::usage,
                "train.loss.quantiles has {} quantiles, but the model's {} outputs do not fall "
                "into groups of so many; give its last layer a multiple of {}",
                loss.quantiles.size(), outputs, loss.quantiles.size());
  }
}

}  // namespace ridgeline::nn
