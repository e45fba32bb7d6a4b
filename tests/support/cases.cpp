#include "tests/support/cases.h"

#include <set>

namespace ridgeline::test {

Arrays Case::inputs(uint64_t seed) const {
  Arrays arrays(program);
  std::set<ValueId> written;
  for (const Op& op : program.ops) {
    for (const Value& value : reads(op)) {
      if (!written.insert(value.id).second) continue;
      const auto found = fills.find(value.id);
      arrays.fill(program, value, found == fills.end() ? normal(1) : found->second, seed);
    }
    for (const Value& value : writes(op)) written.insert(value.id);
  }
  for (const auto& [copy, of] : copy_of) {
    const Tensor &from = arrays.at(of), &to = arrays.at(copy);
    for (int64_t i = 0; i < to.numel(); ++i) set_element(to, i, get_element(from, i));
  }
  return arrays;
}

std::vector<Case> all_cases(DType dtype) {
  std::vector<Case> all = op_cases(dtype);
  for (const auto& more :
       {fused_cases(dtype), mixed_cases(dtype), training_cases(dtype), recurrent_cases(dtype)}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

CaseBuilder::CaseBuilder(std::string name, DType dtype) : dtype_(dtype) {
  case_.name = std::move(name) + " " + std::string(ridgeline::name(dtype));
  case_.program.repeats = 4;
  for (const Precision precision :
       {Precision::fp64, Precision::fp32, Precision::bf16, Precision::fp16}) {
    if (storage(precision) == dtype) case_.program.precision = precision;
  }
}

Value CaseBuilder::make(std::string name, DType dtype, const Shape& shape, Role role, Fill fill,
                        int64_t below) {
  const Value value = case_.program.add_value(std::move(name), dtype, shape, role, below);
  case_.fills[value.id] = fill;
  return value;
}

Value CaseBuilder::in(std::string name, const Shape& shape, Fill fill) {
  return make(std::move(name), dtype_, shape, Role::input, fill);
}
Value CaseBuilder::param(std::string name, const Shape& shape, Fill fill) {
  return make(std::move(name), dtype_, shape, Role::param, fill);
}
Value CaseBuilder::state(std::string name, const Shape& shape, Fill fill) {
  return make(std::move(name), dtype_, shape, Role::state, fill);
}
Value CaseBuilder::temp(std::string name, const Shape& shape) {
  return make(std::move(name), dtype_, shape, Role::temp, normal(1));
}
Value CaseBuilder::out(std::string name, const Shape& shape) {
  return make(std::move(name), dtype_, shape, Role::output, normal(1));
}
Value CaseBuilder::accumulator(std::string name, const Shape& shape, Role role, Fill fill) {
  const DType dtype = dtype_ == DType::fp64 ? DType::fp64 : DType::fp32;
  return make(std::move(name), dtype, shape, role, fill);
}
Value CaseBuilder::copy(const Value& w) {
  const std::string of = case_.program.info(w.id).name;
  const Value value = make(of + ".copy", dtype_, w.shape, Role::copy, normal(1));
  case_.copy_of[value.id] = w.id;
  return value;
}
Value CaseBuilder::loss_scale(double value) {
  if (!loss_scale_) {
    loss_scale_ = make("loss_scale", DType::fp64, {1}, Role::state, constant(value));
  }
  return loss_scale_;
}
Value CaseBuilder::labels(const Shape& shape, int64_t classes) {
  return make("label", DType::int32, shape, Role::input, normal(1), classes);
}

void CaseBuilder::repeats(int64_t count, int64_t start_tick) {
  case_.program.repeats = count;
  start_tick_ = start_tick;
}

Value CaseBuilder::tick() {
  if (!tick_) {
    tick_ = make("tick", DType::int32, {1}, Role::state, constant(double(start_tick_)),
                 case_.program.repeats);
  }
  return tick_;
}
Value CaseBuilder::step() {
  if (!step_) step_ = make("step", DType::int64, {1}, Role::input, constant(7), 8);
  return step_;
}
Value CaseBuilder::lr() {
  if (!lr_) {
    lr_ = make("lr", DType::fp64, {case_.program.repeats}, Role::input, uniform(0.01, 0.2));
  }
  return lr_;
}
Value CaseBuilder::loss() {
  if (!loss_) loss_ = make("loss", DType::fp64, {case_.program.repeats}, Role::output, normal(1));
  return loss_;
}
Value CaseBuilder::correct() {
  if (!correct_) {
    correct_ = make("correct", DType::int32, {case_.program.repeats}, Role::output, normal(1));
  }
  return correct_;
}

void CaseBuilder::add_update(const std::string& how, const Value& w, const Value& dw,
                             const Value& grad_scale, const Value& copy) {
  const std::string of = case_.program.info(w.id).name;
  if (how.starts_with("adam")) {
    AdamUpdate op;
    op.w = w;
    op.dw = dw;
    op.m = accumulator(of + ".m", w.shape, Role::state, normal(0.1));
    op.v = accumulator(of + ".v", w.shape, Role::state, uniform(0.01, 0.1));
    op.lr = lr();
    op.step = step();
    op.tick = tick();
    op.grad_scale = grad_scale;
    op.copy = copy;
    op.decoupled = how == "adamw";
    op.weight_decay = op.decoupled ? 0.05 : 0.0;
    add(op);
    return;
  }
  SgdUpdate op;
  op.w = w;
  op.dw = dw;
  op.lr = lr();
  op.tick = tick();
  op.grad_scale = grad_scale;
  op.copy = copy;
  op.nesterov = how == "nesterov";
  if (how != "sgd") {
    op.momentum = 0.9;
    op.weight_decay = 1e-2;
    op.m = accumulator(of + ".momentum", w.shape, Role::state, normal(0.1));
  }
  add(op);
}

Case CaseBuilder::done(int64_t steps) {
  case_.steps = steps;
  return std::move(case_);
}

}  // namespace ridgeline::test
