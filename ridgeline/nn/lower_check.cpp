#include "ridgeline/nn/lower_check.h"

#include <limits>

#include "ridgeline/nn/loss_ops.h"

namespace ridgeline::nn {
namespace {

bool any_trained(const Model& model, const LowerOptions& options) {
  for (size_t layer = 0; layer < model.layers().size(); ++layer) {
    if (layer < options.frozen.size() && options.frozen[layer]) continue;
    for (size_t p = model.first_param(layer); p < model.first_param(layer + 1); ++p) {
      if (model.params()[p].trained()) return true;
    }
  }
  return false;
}

}  // namespace

void check_lowering(const Model& model, const LowerOptions& options) {
  const auto at_least_one = [](int64_t value, const char* what) {
    if (value < 1) throw_error(ErrorKind::usage, "{} must be at least 1, is {}", what, value);
  };
  at_least_one(options.batch, "the batch");
  at_least_one(options.repeats, "the number of steps a launch makes");
  at_least_one(options.set_samples, "the number of samples in the set");
  if (options.set_samples > std::numeric_limits<int32_t>::max()) {
    throw_error(ErrorKind::usage,
                "a set of {} samples is too large; they are numbered with 32 bits",
                options.set_samples);
  }
  if (options.order_samples < options.batch) {
    throw_error(ErrorKind::usage, "a batch of {} does not fit an order of {} samples",
                options.batch, options.order_samples);
  }
  if (model.output().numel() % options.targets != 0) {
    throw_error(
        ErrorKind::usage,
        "the model's output {} does not fall into {} steps, one for each target; end it with "
        "a linear layer of per_step = true",
        to_string(model.output()), options.targets);
  }
  if (options.mode != Mode::infer && options.classes > model.output().numel() / options.targets) {
    throw_error(ErrorKind::usage,
                "the model's output {} is too small for {} classes; widen its last linear layer",
                to_string(model.output()), options.classes);
  }
  const std::vector<Head>& heads = model.graph().heads();
  const bool values = is_float(options.set_targets);
  if (options.mode != Mode::infer && !heads.empty()) {
    if (!values) {
      throw_error(
          ErrorKind::usage,
          "a model with heads learns several fields (data.train and the heads' target), but "
          "the data has one label a sample");
    }
    for (const Head& head : heads) {
      if (head.loss.balanced) {
        throw_error(ErrorKind::usage, "the head {}: balanced weights are for one output; give them",
                    head.name);
      }
      check_loss(head.loss, model.output_of(head.layer).numel());
    }
  }
  if (options.mode != Mode::infer && heads.empty() && values && wants_labels(options.loss.kind)) {
    throw_error(ErrorKind::usage,
                "cross-entropy compares classes, but the targets are values; use mse");
  }
  if (options.mode != Mode::infer && heads.empty()) {
    check_loss(options.loss, model.output().numel() / options.targets);
    if (options.loss.balanced && options.loss.weights.empty() && options.mode == Mode::train) {
      throw_error(ErrorKind::usage, "balanced class weights were not worked out from the labels");
    }
  }
  const bool codes = model.layers().front()->codes_below() > 0;
  if (options.set_inputs == DType::int32 && !codes) {
    throw_error(ErrorKind::usage, "the inputs are codes; begin with an embedding");
  }
  if (options.set_inputs != DType::uint8) {
    if (codes && options.set_inputs != DType::int32) {
      throw_error(ErrorKind::usage,
                  "the first layer takes codes, but the inputs are {}; begin with another layer",
                  name(options.set_inputs));
    }
    if (options.mode == Mode::train && (options.augment.shift > 0 || options.augment.flip)) {
      throw_error(ErrorKind::usage,
                  "data.augment moves images of bytes, but the inputs are {}; leave it out of the "
                  "config",
                  name(options.set_inputs));
    }
  }
  const DType weights = options.precision == Precision::fp64 ? DType::fp64 : DType::fp32;
  for (const Param& param : model.params()) {
    if (param.kind != ParamKind::counter && param.value.view().dtype != weights) {
      throw_error(ErrorKind::usage, "{} is {}, but a run in {} needs {}", param.name,
                  name(param.value.view().dtype), name(options.precision), name(weights));
    }
  }
  const bool half = size_of(storage(options.precision)) == 2;
  if (!half && options.weights == WeightKind::half) {
    throw_error(ErrorKind::usage, "half weights are for bf16 and fp16, not {}",
                name(options.precision));
  }
  if (!half && options.loss_scale.kind != LossScale::Kind::none) {
    throw_error(ErrorKind::usage, "a loss scale is for bf16 and fp16, not {}",
                name(options.precision));
  }
  if (options.mode == Mode::train && model.parameter_count() == 0) {
    throw_error(ErrorKind::usage, "the model has no weights to train; add a linear layer");
  }
  if (options.mode == Mode::train && !any_trained(model, options)) {
    throw_error(ErrorKind::usage,
                "every layer with weights is frozen; leave one out of train.freeze");
  }
}

}  // namespace ridgeline::nn
