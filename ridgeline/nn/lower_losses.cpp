#include "ridgeline/nn/lower_losses.h"

#include <fmt/format.h>

namespace ridgeline::nn {

void Losses::gather() {
  if (options_.sample_weights && options_.mode == Mode::train) gather_weights();
  if (has_values()) {
    const int64_t columns = heads().empty() ? target_columns(options_.loss, model_.output().numel())
                                            : head_columns(model_);
    lowered_.targets =
        add_value("targets", options_.set_targets, {options_.set_samples, columns}, Role::input);
    target_ = builder_.temp("target", {options_.batch, columns});
    builder_.add(Gather{lowered_.targets, lowered_.order, lowered_.first, lowered_.tick, target_});
    return;
  }
  const int64_t classes =
      options_.classes > 0 ? options_.classes : model_.output().numel() / options_.targets;
  const bool one = options_.targets == 1;
  const Shape all =
      one ? Shape{options_.set_samples} : Shape{options_.set_samples, options_.targets};
  lowered_.targets = add_value("labels", DType::int32, all, Role::input, classes);
  target_ = add_value("label", DType::int32, all.with(0, options_.batch), Role::temp, classes);
  builder_.add(Gather{lowered_.targets, lowered_.order, lowered_.first, lowered_.tick, target_});
  target_.shape = {options_.batch * options_.targets};
}

void Losses::gather_weights() {
  lowered_.sample_weights =
      add_value("sample_weights", DType::fp32, {options_.set_samples, 1}, Role::input);
  weight_ = builder_.temp("sample_weight", {options_.batch, 1});
  builder_.add(
      Gather{lowered_.sample_weights, lowered_.order, lowered_.first, lowered_.tick, weight_});
}

void Losses::add(const Value& x, int last_layer) {
  const Shape steps{options_.repeats};
  lowered_.loss = add_value("loss", DType::fp64, steps, Role::output);
  if (!has_values()) {
    lowered_.correct = add_value("correct", DType::int32, steps, Role::output);
  }
  // 1 over the targets of the global batch, and over the outputs if the loss is a mean of them.
  const double targets = double(samples()) * double(options_.targets) *
                         double(averaged_outputs(options_.loss, x.shape[1]));
  add_one(options_.loss, last_layer, x, target_, options_.idle ? 0.0 : 1.0 / targets,
          "loss_constants", lowered_.loss, lowered_.correct);
}

// Appends the loss of a layer's output `x`, and keeps the operands of its gradient.
void Losses::add_one(const Loss& given, int layer, const Value& x, const Value& target,
                     double scale, const std::string& constants, const Value& result,
                     const Value& correct) {
  Criterion criterion{given, {x, target, {}, lowered_.tick, {}, scale}, layer};
  // An evaluation counts every sample equally, and so does an idle rank, whose single sample has no
  // effect: the weights of its batch might add up to zero.
  if (options_.mode != Mode::train || options_.idle) criterion.loss.weights.clear();
  if (options_.mode != Mode::train) criterion.loss.smoothing = 0;
  const std::vector<double> numbers = loss_constants(criterion.loss);
  if (!numbers.empty()) {
    criterion.operands.constants =
        add_value(constants, DType::fp64, {int64_t(numbers.size())}, Role::input);
    lowered_.constants.push_back({criterion.operands.constants, numbers});
  }
  builder_.add(loss_op(criterion.loss, criterion.operands, result, correct));
  criteria_.push_back(std::move(criterion));
}

// The targets of the heads are side by side, like their outputs in the net's output. Classes are a
// one-hot row, whose largest element is the label.
Value Losses::head_target(const Head& head, int64_t begin, int64_t columns) {
  const int64_t whole = target_.shape[1];
  const Value part = builder_.temp("target." + head.name, {options_.batch, columns});
  builder_.add(Pad{target_, part, {1, 1, whole}, {1, 1, columns}, {0, 0, -begin}});
  if (!wants_labels(head.loss.kind)) return part;
  const Value label =
      add_value("label." + head.name, DType::int32, {options_.batch}, Role::temp, columns);
  builder_.add(Argmax{part, label});
  return label;
}

// Appends the loss of each head, and their sum. `correct` is that of the first head with classes.
void Losses::add_heads(const std::vector<LayerValues>& layers) {
  const Shape steps{options_.repeats};
  lowered_.loss = add_value("loss", DType::fp64, steps, Role::output);
  int64_t begin = 0;
  for (const Head& head : heads()) {
    const Value& x = layers[size_t(head.layer)].y;
    const int64_t outputs = x.shape.numel() / x.shape[0];
    const int64_t columns = target_columns(head.loss, outputs);
    const Value target = head_target(head, begin, columns);
    begin += columns;
    Value correct;
    if (wants_labels(head.loss.kind)) {
      const bool first = !lowered_.correct;
      correct =
          add_value(first ? "correct" : "correct." + head.name, DType::int32, steps, Role::output);
      if (first) lowered_.correct = correct;
    }
    const double share = double(samples()) * double(averaged_outputs(head.loss, outputs));
    lowered_.head_losses.push_back(
        add_value("loss." + head.name, DType::fp64, steps, Role::output));
    add_one(head.loss, head.layer, x, target, options_.idle ? 0.0 : head.weight / share,
            "loss_constants." + head.name, lowered_.head_losses.back(), correct);
  }
  // Adds the losses of all steps of the launch so far; the losses of the heads stay in place.
  builder_.add(Add{lowered_.head_losses, lowered_.loss});
}

Value Losses::add_gradient(size_t loss) {
  Criterion& criterion = criteria_[loss];
  const Value& x = criterion.operands.x;
  const Value dx =
      builder_.like(fmt::format("dx{}{}", criterion.layer + 1, heads().empty() ? "" : ".loss"), x);
  criterion.operands.loss_scale = lowered_.loss_scale;
  builder_.add(loss_grad_op(criterion.loss, criterion.operands, dx));
  return weight_ ? weighted(dx) : dx;
}

// Multiplies the gradient of each sample by its weight. The loss itself counts all samples alike,
// so that it can be compared between runs and with an evaluation's.
Value Losses::weighted(const Value& dx) {
  const int64_t columns = dx.shape.numel() / options_.batch;
  Value weights = weight_;
  if (columns > 1) {
    weights = builder_.like("sample_weights.columns", dx);
    builder_.add(Upsample{weight_, weights, {{1, 1, 1}, columns, 1, UpsampleMode::nearest}});
  }
  const Value product = builder_.like("weighted_gradient", dx);
  builder_.add(Multiply{dx, weights, product});
  return product;
}

}  // namespace ridgeline::nn
