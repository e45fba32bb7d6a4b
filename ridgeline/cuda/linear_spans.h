#pragma once

#include <string>

#include "ridgeline/cuda/plain/gemm.h"
#include "ridgeline/cuda/row.h"

// Spans that rows of linear layers take in several folders, and their operands.
namespace ridgeline::cuda {

// Of a linear alone, or with the activation that follows it.
template <typename T>
LinearArgs<T> linear_args(const Span& span, const Binding& binding) {
  const auto& op = span.get<Linear>(0);
  const auto* activation = span.size() == 2 ? &span.get<Activation>(1) : nullptr;
  const bool wide_b = is_wide(op.b, op.x.dtype);
  return {binding.read(op.x).as<T>(),
          binding.read(op.w).as<T>(),
          wide_b ? nullptr : binding.read(op.b).as<T>(),
          wide_b ? binding.read(op.b).as<float>() : nullptr,
          binding.write(activation != nullptr ? activation->y : op.y).as<T>(),
          int(op.n()),
          int(op.in()),
          int(op.out()),
          activation != nullptr ? curve_of(activation->kind) : Curve::none};
}

// A linear_grad_w and the sgd_updates that use its gradients and nothing else does.
struct GradWithUpdates {
  const LinearGradW* grad = nullptr;
  const SgdUpdate *w = nullptr, *b = nullptr;  // b null without bias
  size_t ops = 0;
  std::string refusal;  // why the next ops are something else
  Values values;        // all operands of the product's type
};
GradWithUpdates match_grad_with_updates(const Rest& rest);

// cover(found) says what a row makes of such a span.
template <typename F>
Cover cover_grad_with_updates(const Rest& rest, F cover) {
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

// Of the gradients alone, or with the updates that follow them.
template <typename T>
LinearGradWArgs<T> linear_grad_w_args(const Span& span, const Binding& binding) {
  using Wide = typename LinearGradWArgs<T>::Wide;
  const auto& op = span.get<LinearGradW>(0);
  LinearGradWArgs<T> args{};
  args.x = binding.read(op.x).as<T>();
  args.dy = binding.read(op.dy).as<T>();
  args.n = int(op.n());
  args.in = int(op.in());
  args.out = int(op.out());
  if (span.size() == 1 && is_wide(op.dw, op.x.dtype)) {
    args.wide_dw = binding.write(op.dw).as<Wide>();
    args.wide_db = binding.write(op.db).as<Wide>();
  } else if (span.size() == 1) {
    args.dw = binding.write(op.dw).as<T>();
    args.db = binding.write(op.db).as<T>();
  } else {
    const auto& w = span.get<SgdUpdate>(1);
    args.w = binding.write(w.w).as<T>();
    args.w_momentum = binding.write(w.m).as<Wide>();
    args.sgd = sgd_settings(w, binding);
  }
  if (span.size() == 3) {
    const auto& b = span.get<SgdUpdate>(2);
    args.b = binding.write(b.w).as<T>();
    args.b_momentum = binding.write(b.m).as<Wide>();
  }
  return args;
}

}  // namespace ridgeline::cuda
