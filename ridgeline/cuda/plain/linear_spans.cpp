#include "ridgeline/cuda/plain/linear_spans.h"

namespace ridgeline::cuda {
namespace {

// Why an update by `gradient` cannot be fused with the gradient; "" if it can, because no other op
// reads the gradient.
std::string refuse_update(const RemainingOps& rest, const SgdUpdate* update, const Value& gradient,
                          size_t ops) {
  if (update == nullptr || update->dw.id != gradient.id) {
    return "the next ops are no linear_grad_w and its sgd_updates";
  }
  if (!rest.dead_after(gradient, ops)) return "the gradient is needed later";
  if (update->copy) return "the weight has a copy";
  if (update->m && update->m.dtype != accumulated(update->w.dtype)) {
    return "needs momentum in the accumulator dtype";
  }
  return {};
}

bool same_settings(const SgdUpdate& a, const SgdUpdate& b) {
  return a.lr.id == b.lr.id && a.tick.id == b.tick.id && a.grad_scale.id == b.grad_scale.id &&
         a.momentum == b.momentum && a.weight_decay == b.weight_decay && a.nesterov == b.nesterov;
}

}  // namespace

GradWithUpdates match_grad_with_updates(const RemainingOps& rest) {
  GradWithUpdates found;
  found.grad = rest.get<LinearGradW>(0);
  if (found.grad == nullptr) {
    found.refusal = no_such_op(LinearGradW::kName).reason;
    return found;
  }
  const LinearGradW& grad = *found.grad;
  found.ops = grad.db ? 3 : 2;
  found.w = rest.get<SgdUpdate>(1);
  found.refusal = refuse_update(rest, found.w, grad.dw, found.ops);
  if (found.refusal.empty() && grad.db) {
    found.b = rest.get<SgdUpdate>(2);
    found.refusal = refuse_update(rest, found.b, grad.db, found.ops);
    if (found.refusal.empty() && !same_settings(*found.w, *found.b)) {
      found.refusal = "weight and bias have different settings";
    }
  }
  if (!found.refusal.empty()) return found;
  found.values = {grad.x, grad.dy, grad.dw, grad.db, found.w->w};
  if (found.b != nullptr) found.values.push_back(found.b->w);
  return found;
}

SgdSettings sgd_settings(const SgdUpdate& op, const Binding& binding) {
  return {binding.read(op.lr).as<double>(),
          binding.read(op.tick).as<int32_t>(),
          binding.read(op.grad_scale).as<double>(),
          op.momentum,
          op.weight_decay,
          op.nesterov};
}

}  // namespace ridgeline::cuda
