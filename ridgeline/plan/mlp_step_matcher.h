#pragma once

#include <utility>
#include <vector>

#include "ridgeline/plan/mlp_step.h"

namespace ridgeline {

// The state of matching the ops of a step one after another. Functions that return bool
// return false, with a refusal, if the program differs.
struct StepMatcher {
  // The gradients of a normalisation's weights.
  struct NormGrad {
    MlpStepOps::Norm* norm;
    Value dgamma, dbeta;
  };

  StepMatcher(const RemainingOps& ops, MlpStepExtras wanted) : rest(ops), extras(wanted) {}

  bool no(std::string why) {
    found.refusal = std::move(why);
    return false;
  }
  // Returns the next op if it is a T, and advances.
  template <typename T>
  const T* next() {
    const T* op = rest.get<T>(found.ops);
    if (op != nullptr) ++found.ops;
    return op;
  }
  void counts(const Value& tick, const Value& step = {}) {
    ticks.push_back(tick);
    if (step) steps.push_back(step);
  }
  void inside(const Value& value) {
    if (value) found.inside.push_back(value.id);
  }

  // Matches the gradient of a normalisation at `dy`, which becomes the gradient of its input.
  template <typename Op, typename Grad>
  bool norm_gradient(MlpStepOps::Norm& norm, const Op& op, const Grad* grad) {
    if (grad == nullptr || grad->x.id != op.x.id || grad->dy.id != dy.id || !grad->dx ||
        grad->mean.id != op.mean.id || grad->rstd.id != op.rstd.id ||
        grad->gamma.id != op.gamma.id || bool(grad->dgamma) != bool(op.gamma) ||
        bool(grad->dbeta) != bool(op.beta)) {
      return no("no gradient of a normalisation");
    }
    dy = grad->dx;
    for (const Value& each : {grad->dx, grad->dgamma, grad->dbeta}) inside(each);
    norm_grads.push_back({&norm, grad->dgamma, grad->dbeta});
    if (grad->dgamma && is_used_next(grad->dgamma)) return norm_updates(norm_grads.back());
    return true;
  }
  bool norm_updates(const NormGrad& grad);
  // The updates of normalisations that were not matched at once; `norm` may be absent.
  bool late_norm_updates(const MlpStepOps::Norm& norm);

  bool is_used_next(const Value& grad) const {
    const auto* sgd = rest.get<SgdUpdate>(found.ops);
    const auto* adam = rest.get<AdamUpdate>(found.ops);
    return (sgd != nullptr && sgd->dw.id == grad.id) || (adam != nullptr && adam->dw.id == grad.id);
  }
  // Matches the updates of a layer's weights and bias.
  template <typename Layer, typename Op, typename Grad>
  bool updates(Layer& layer, const Op& op, const Grad& grad) {
    if (extras.adam && rest.get<AdamUpdate>(found.ops) != nullptr) {
      layer.adam_w = update(op.w, grad.dw, first_adam);
      if (layer.adam_w != nullptr) counts(layer.adam_w->tick, layer.adam_w->step);
      if (grad.db) layer.adam_b = update(op.b, grad.db, first_adam);
    } else {
      layer.sgd_w = update(op.w, grad.dw, first_sgd);
      if (grad.db) layer.sgd_b = update(op.b, grad.db, first_sgd);
    }
    const bool all = (layer.sgd_w != nullptr && bool(layer.sgd_b) == bool(grad.db)) ||
                     (layer.adam_w != nullptr && bool(layer.adam_b) == bool(grad.db));
    const bool one_kind = first_sgd == nullptr || first_adam == nullptr;
    if (all && one_kind) return true;
    return no(extras.adam ? "the gradients are not used by SGD or Adam as they are"
                          : "the gradients are not used by SGD as they are");
  }

  template <typename Update>
  const Update* update(const Value& w, const Value& dw, const Update*& first) {
    const auto* op = next<Update>();
    const Value scale = found.norm != nullptr ? found.norm->scale : Value{};
    if (op == nullptr || op->dw.id != dw.id || op->grad_scale.id != scale.id) return nullptr;
    if ((op->copy ? op->copy.id : op->w.id) != w.id) return nullptr;
    found.copies |= bool(op->copy);
    if (first == nullptr) first = op;
    counts(op->tick);
    return alike(*op, *first) ? op : nullptr;
  }
  static bool alike(const SgdUpdate& a, const SgdUpdate& b) {
    return a.momentum == b.momentum && a.weight_decay == b.weight_decay &&
           a.nesterov == b.nesterov && a.lr.id == b.lr.id && bool(a.m) == bool(b.m);
  }
  static bool alike(const AdamUpdate& a, const AdamUpdate& b) {
    return a.beta1 == b.beta1 && a.beta2 == b.beta2 && a.epsilon == b.epsilon &&
           a.weight_decay == b.weight_decay && a.decoupled == b.decoupled && a.lr.id == b.lr.id &&
           a.step.id == b.step.id;
  }

  const RemainingOps& rest;
  MlpStepExtras extras;
  MlpStepOps found;
  Value dy;
  std::vector<const LinearGradW*> grads;       // from the top down
  std::vector<const Conv2dGradW*> conv_grads;  // likewise
  std::vector<NormGrad> norm_grads;            // in the order of the program
  const SgdUpdate* first_sgd = nullptr;
  const AdamUpdate* first_adam = nullptr;
  Values ticks, steps;  // counters of the ops
};

// The convolutions of a step, from found.inputs->y on: `x` becomes the last one's output.
bool match_convolutions(StepMatcher& step, Value* x);
// Their gradients, from step.dy down, and their updates.
bool match_convolution_gradients(StepMatcher& step);
bool match_late_convolution_updates(StepMatcher& step);

}  // namespace ridgeline
