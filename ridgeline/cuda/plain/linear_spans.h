#pragma once

#include <string>

#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/gemm.h"

// Spans that the linear-layer kernels of several folders take, and their operands.
namespace ridgeline::cuda {

// The operands of a linear alone, or with the activation that follows it.
template <typename T>
LinearArgs<T> linear_args(const Span& span, const Binding& binding) {
  const auto& op = span.get<Linear>(0);
  const auto* activation = span.size() == 2 ? &span.get<Activation>(1) : nullptr;
  const bool b_is_accumulator = is_accumulator(op.b, op.x.dtype);
  return {binding.read(op.x).as<T>(),
          binding.read(op.w).as<T>(),
          b_is_accumulator ? nullptr : binding.read(op.b).as<T>(),
          b_is_accumulator ? binding.read(op.b).as<float>() : nullptr,
          binding.write(activation != nullptr ? activation->y : op.y).as<T>(),
          int(op.n()),
          int(op.in()),
          int(op.out()),
          activation != nullptr ? activation_of(activation->kind) : ActivationFn::none};
}

// A linear_grad_w and the sgd_updates that are the only readers of its gradients.
struct GradWithUpdates {
  const LinearGradW* grad = nullptr;
  const SgdUpdate *w = nullptr, *b = nullptr;  // b null without bias
  size_t ops = 0;
  std::string refusal;  // why the next ops do not match
  Values values;        // all operands of the product's type
};
GradWithUpdates match_grad_with_updates(const RemainingOps& rest);

// cover(found) returns a kernel's cover of such a span.
template <typename F>
Cover cover_grad_with_updates(const RemainingOps& rest, F cover) {
  const GradWithUpdates found = match_grad_with_updates(rest);
  if (!found.refusal.empty()) return Cover::no(found.refusal);
  Cover all = cover(found);
  if (all.ops > 0) {
    all.skips = {found.grad->dw.id};
    if (found.grad->db) all.skips.push_back(found.grad->db.id);
  }
  return all;
}

SgdSettings sgd_settings(const SgdUpdate& op, const Binding& binding);

// The operands of the gradients alone, or with the updates that follow them.
template <typename T>
LinearGradWArgs<T> linear_grad_w_args(const Span& span, const Binding& binding) {
  using Accumulator = typename LinearGradWArgs<T>::Accumulator;
  const auto& op = span.get<LinearGradW>(0);
  LinearGradWArgs<T> args{};
  args.x = binding.read(op.x).as<T>();
  args.dy = binding.read(op.dy).as<T>();
  args.n = int(op.n());
  args.in = int(op.in());
  args.out = int(op.out());
  if (span.size() == 1 && is_accumulator(op.dw, op.x.dtype)) {
    args.acc_dw = binding.write(op.dw).as<Accumulator>();
    args.acc_db = binding.write(op.db).as<Accumulator>();
  } else if (span.size() == 1) {
    args.dw = binding.write(op.dw).as<T>();
    args.db = binding.write(op.db).as<T>();
  } else {
    const auto& w = span.get<SgdUpdate>(1);
    args.w = binding.write(w.w).as<T>();
    args.w_momentum = binding.write(w.m).as<Accumulator>();
    args.sgd = sgd_settings(w, binding);
  }
  if (span.size() == 3) {
    const auto& b = span.get<SgdUpdate>(2);
    args.b = binding.write(b.w).as<T>();
    args.b_momentum = binding.write(b.m).as<Accumulator>();
  }
  return args;
}

}  // namespace ridgeline::cuda
