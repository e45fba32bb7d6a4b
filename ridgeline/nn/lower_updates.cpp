#include "ridgeline/nn/lower_updates.h"

#include <fmt/format.h>

#include <limits>

namespace ridgeline::nn {

void Updates::start_sum(size_t layer) {
  AllReduceStart start;
  start.ranks = options_.ranks;
  start.wire = options_.gradient_wire;
  for (Value& grad : layers_[layer].grads) {
    if (!grad) continue;  // statistics have none
    const Value sum =
        add_value(lowered_.program.info(grad.id).name + ".sum", grad.dtype, grad.shape, Role::temp);
    start.grads.push_back(grad);
    start.sums.push_back(sum);
    grad = sum;
  }
  if (start.grads.empty()) return;
  start.token = add_value(fmt::format("token{}", layer), DType::int64, {1}, Role::temp);
  waits_[layer] = AllReduceWait{start.grads, start.sums, start.token};
  builder_.add(std::move(start));
}

void Updates::wait_for_sum(size_t layer) {
  const auto found = waits_.find(layer);
  if (found == waits_.end()) return;
  builder_.enter(int(layer));
  builder_.add(found->second);
}

void Updates::scale_and_update(size_t lowest) {
  lowered_.grad_norm = add_value("grad_norm", DType::fp64, {1}, Role::output);
  lowered_.clipped = add_value("clipped", DType::int64, {1}, Role::state);
  const Value scale = add_value("grad_scale", DType::fp64, {1}, Role::temp);
  Values grads;
  for (const LayerValues& values : layers_) {
    for (const Value& grad : values.grads) {
      if (grad) grads.push_back(grad);
    }
  }
  builder_.enter(-1);
  GlobalNorm norm{grads, lowered_.grad_norm, scale, lowered_.clipped};
  norm.max_norm =
      options_.clip_norm > 0 ? options_.clip_norm : std::numeric_limits<double>::infinity();
  if (lowered_.loss_scale) {
    lowered_.skipped = add_state("skipped", DType::int64, {1});
    norm.loss_scale = lowered_.loss_scale;
    norm.good = add_state("loss_scale.good", DType::int64, {1});
    norm.skipped = lowered_.skipped;
    const bool dynamic = options_.loss_scale.kind == LossScale::Kind::dynamic;
    norm.growth = dynamic ? options_.loss_scale.growth : 0;
  }
  builder_.add(norm);
  for (size_t i = layers_.size(); i-- > lowest;) {
    builder_.enter(int(i));
    update(i, scale);
  }
}

void Updates::update(size_t layer, const Value& grad_scale) {
  const DType dtype = builder_.dtype() == DType::fp64 ? DType::fp64 : DType::fp32;
  for (size_t p = 0; p < layers_[layer].grads.size(); ++p) {
    const size_t number = model_.first_param(layer) + p;
    const Value& w = lowered_.params[number];
    if (!layers_[layer].grads[p]) continue;
    Values state;
    for (const std::string& part : state_names(options_.optimizer)) {
      state.push_back(add_state(model_.params()[number].name + "." + part, dtype, w.shape));
    }
    const Value copy = factors_[number].id != w.id ? factors_[number] : Value{};
    add_update(w, layers_[layer].grads[p], state, grad_scale, copy);
  }
}

Value Updates::add_state(const std::string& name, DType dtype, const Shape& shape, double start) {
  const Value value = add_value(name, dtype, shape, Role::state);
  lowered_.states.push_back({name, value, start});
  return value;
}

void Updates::add_update(const Value& w, const Value& dw, const Values& state,
                         const Value& grad_scale, const Value& copy) {
  const Optimizer& o = options_.optimizer;
  if (o.kind == OptimizerKind::sgd) {
    builder_.add(SgdUpdate{w, dw, state.empty() ? Value{} : state[0], lowered_.lr, lowered_.tick,
                           grad_scale, o.momentum, o.weight_decay, o.nesterov, copy});
    return;
  }
  builder_.add(AdamUpdate{w, dw, state[0], state[1], lowered_.lr, builder_.step(), lowered_.tick,
                          grad_scale, o.beta1, o.beta2, o.epsilon, o.weight_decay,
                          o.kind == OptimizerKind::adamw, copy});
}

}  // namespace ridgeline::nn
