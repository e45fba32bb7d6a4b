#include "ridgeline/plan/mlp_step_matcher.h"

namespace ridgeline {
namespace {

bool tiles(const Slide& slide) {
  return slide.stride == slide.kernel && slide.pad == 0 && slide.dilation == 1;
}

bool match_one(StepMatcher& step, const Conv2d& conv, Value* x) {
  const Window& window = conv.shape.window;
  if (conv.x.id != x->id || conv.w.dtype != x->dtype || conv.n() != step.found.batch()) {
    return step.no("layers are not a chain");
  }
  if (conv.shape.groups != 1 || window.h.dilation != 1 || window.w.dilation != 1) {
    return step.no("a convolution in groups or with holes");
  }
  MlpStepOps::Convolution found{.conv = &conv};
  const auto follow = [&](const auto* op) {
    if (op == nullptr) return true;
    if (op->x.id != x->id) return step.no("layers are not a chain");
    *x = op->y;
    step.inside(op->y);
    return true;
  };
  *x = conv.y;
  step.inside(conv.y);
  if (const auto* norm = step.next<BatchNorm>()) {
    found.norm.batch = norm;
    const bool whole = norm->in.c == conv.shape.k && norm->count() > 1;
    if (!whole || !norm->rstd) return step.no("a normalisation of parts of a layer");
    step.inside(norm->mean);
    step.inside(norm->rstd);
    if (!follow(norm)) return false;
  }
  if (!follow(found.activation = step.next<Activation>())) return false;
  found.pool = step.next<MaxPool>();
  if (found.pool != nullptr &&
      !(tiles(found.pool->shape.window.h) && tiles(found.pool->shape.window.w))) {
    return step.no("a pool whose windows overlap or leave pixels out");
  }
  if (!follow(found.pool)) return false;
  step.found.convolutions.push_back(found);
  return true;
}

bool match_gradient(StepMatcher& step, MlpStepOps::Convolution& layer, bool lowest) {
  Value& dy = step.dy;
  const auto pass = [&](const Value& dx) {
    dy = dx;
    step.inside(dx);
  };
  if (layer.pool != nullptr) {
    const auto* op = step.next<MaxPoolGrad>();
    if (op == nullptr || op->dy.id != dy.id || op->x.id != layer.pool->x.id ||
        op->y.id != layer.pool->y.id || op->shape != layer.pool->shape) {
      return step.no("no gradient of a pool");
    }
    pass(op->dx);
  }
  if (layer.activation != nullptr) {
    const auto* op = step.next<ActivationGrad>();
    const Activation& f = *layer.activation;
    const ValueId saved = saves_output(f.kind) ? f.y.id : f.x.id;
    if (op == nullptr || op->dy.id != dy.id || op->kind != f.kind || op->parameter != f.parameter ||
        op->saved.id != saved) {
      return step.no("no gradient of the activation");
    }
    pass(op->dx);
  }
  if (layer.norm &&
      !step.norm_gradient(layer.norm, *layer.norm.batch, step.next<BatchNormGrad>())) {
    return false;
  }
  const Conv2d& conv = *layer.conv;
  Value dx;
  if (!lowest) {
    const auto* op = step.next<Conv2dGradX>();
    if (op == nullptr || op->dy.id != dy.id || op->w.id != conv.w.id || op->shape != conv.shape) {
      return step.no("no gradient of a layer's input");
    }
    dx = op->dx;
    step.inside(dx);
  }
  const auto* op = step.next<Conv2dGradW>();
  if (op == nullptr || op->dy.id != dy.id || op->x.id != conv.x.id || op->shape != conv.shape ||
      bool(op->db) != bool(conv.b)) {
    return step.no("no gradient of a layer's weights");
  }
  step.inside(op->dw);
  step.inside(op->db);
  step.conv_grads.push_back(op);
  if (step.is_used_next(op->dw) && !step.updates(layer, conv, *op)) return false;
  dy = dx;
  return true;
}

}  // namespace

bool match_convolutions(StepMatcher& step, Value* x) {
  while (const auto* conv = step.next<Conv2d>()) {
    if (!match_one(step, *conv, x)) return false;
  }
  return true;
}

bool match_convolution_gradients(StepMatcher& step) {
  auto& layers = step.found.convolutions;
  for (size_t l = layers.size(); l-- > 0;) {
    if (!match_gradient(step, layers[l], l == 0)) return false;
  }
  return true;
}

bool match_late_convolution_updates(StepMatcher& step) {
  auto& layers = step.found.convolutions;
  for (size_t l = layers.size(), k = 0; l-- > 0; ++k) {
    const bool updated = layers[l].sgd_w != nullptr || layers[l].adam_w != nullptr;
    if (updated && step.found.norm != nullptr) return step.no("an update before the norm");
    if (!step.late_norm_updates(layers[l].norm)) return false;
    if (!updated && !step.updates(layers[l], *layers[l].conv, *step.conv_grads[k])) return false;
  }
  return true;
}

}  // namespace ridgeline
