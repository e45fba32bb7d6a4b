#include "ridgeline/plan/mlp_step_matcher.h"

namespace ridgeline {
namespace {

// Matches the ops one after another.
class Matcher : private StepMatcher {
 public:
  using StepMatcher::StepMatcher;

  MlpStepOps run() {
    if (inputs() && forward() && loss() && backward() && norm() && late_updates() && ending()) {
      inside_only();
    }
    return std::move(found);
  }

 private:
  bool inputs() {
    if (const auto* op = extras.convolutions ? next<GatherAugment>() : nullptr) {
      found.augment = op;
      found.inputs = Gather{op->set, op->order, op->first, op->tick, op->y, op->scale, op->shift};
    } else if (const auto* plain = next<Gather>()) {
      found.inputs = *plain;
    } else {
      return no("the step does not begin with a gather");
    }
    found.targets = next<Gather>();
    if (found.targets == nullptr) return no("no gather of targets");
    const Gather &x = *found.inputs, &target = *found.targets;
    const bool floats = extras.floats && x.set.dtype == DType::fp32 && found.augment == nullptr;
    const bool values = extras.losses && target.set.dtype == DType::fp32;
    if (!is_float(x.y.dtype) || (!floats && x.set.dtype != DType::uint8)) {
      return no(extras.floats ? "wants samples of uint8 or fp32" : "wants samples of uint8");
    }
    if (!values && (target.set.dtype != DType::int32 || target.y.shape.numel() != x.y.shape[0])) {
      return no("wants one int32 label a sample");
    }
    if (x.y.shape[0] < 1) return no("empty");
    if (x.order.id != target.order.id || x.first.id != target.first.id ||
        x.tick.id != target.tick.id) {
      return no("inputs and targets are gathered by different orders");
    }
    counts(x.tick);
    inside(x.y);
    inside(target.y);
    return true;
  }

  bool forward() {
    Value x = found.inputs->y;
    if (extras.convolutions && !match_convolutions(*this, &x)) return false;
    while (const auto* linear = next<Linear>()) {
      // A layer applied to every timestep of a sequence sees its input as more rows.
      if (linear->x.id != x.id || linear->w.dtype != x.dtype || linear->n() != found.batch()) {
        return no("layers are not a chain");
      }
      MlpStepOps::Layer layer{.linear = linear};
      x = linear->y;
      inside(x);
      if (extras.norms && !normalisation(layer, &x)) return false;
      layer.activation = next<Activation>();
      if (layer.activation != nullptr) {
        if (layer.activation->x.id != x.id) return no("layers are not a chain");
        x = layer.activation->y;
        inside(x);
      }
      layer.dropout = next<Dropout>();
      if (layer.dropout != nullptr) {
        if (!extras.dropout) return no("outputs are dropped");
        if (layer.dropout->x.id != x.id) return no("layers are not a chain");
        counts(layer.dropout->tick, layer.dropout->step);
        x = layer.dropout->y;
        inside(x);
      }
      found.layers.push_back(layer);
    }
    if (found.layers.empty()) return no("no linear layer");
    const MlpStepOps::Layer& last = found.layers.back();
    if (last.activation != nullptr || last.dropout != nullptr || last.norm) {
      return no("something follows the last linear layer");
    }
    for (size_t l = 0; l + 1 < found.layers.size(); ++l) {
      if (found.layers[l].activation == nullptr && !extras.bare_layers) {
        return no("a hidden layer has no activation");
      }
    }
    return true;
  }

  // Matches a normalisation of `x`, a linear layer's output, and sets `x` to its output.
  bool normalisation(MlpStepOps::Layer& layer, Value* x) {
    MlpStepOps::Norm& norm = layer.norm;
    norm.layer = next<LayerNorm>();
    if (norm.layer == nullptr) norm.group = next<GroupNorm>();
    if (norm.layer == nullptr && norm.group == nullptr) norm.batch = next<BatchNorm>();
    if (!norm) return true;
    const int64_t width = layer.out();
    const bool whole = norm.layer != nullptr ? norm.layer->width == width
                       : norm.group != nullptr
                           ? norm.group->width == width && norm.group->spatial == 1
                           : norm.batch->in.pixels() == 1 && norm.batch->n() > 1;
    if (!whole) return no("a normalisation of parts of a layer");
    return norm.visit([&](const auto& op) {
      if (op.x.id != x->id || !op.rstd) return no("layers are not a chain");
      inside(op.mean);
      inside(op.rstd);
      *x = op.y;
      inside(op.y);
      return true;
    });
  }

  bool loss() {
    if (extras.losses && rest.get<Mse>(found.ops) != nullptr) {
      found.mse = next<Mse>();
      const auto* grad = next<MseGrad>();
      return loss_of(*found.mse, found.mse->target, grad, grad ? grad->target : Value{});
    }
    if (extras.losses && rest.get<ElementwiseLoss>(found.ops) != nullptr) {
      const ElementwiseLoss& loss = *(found.elementwise = next<ElementwiseLoss>());
      const auto* grad = next<ElementwiseLossGrad>();
      if (grad != nullptr && (grad->fn != loss.fn || grad->delta != loss.delta ||
                              grad->weights.id != loss.weights.id)) {
        return no("loss and gradient are of different things");
      }
      if (loss.sample_weights) return no("samples are weighted");
      return loss_of(loss, loss.target, grad, grad ? grad->target : Value{});
    }
    found.xent = next<SoftmaxXent>();
    if (found.xent == nullptr) {
      return no(extras.losses ? "no loss" : "the loss is no softmax cross-entropy");
    }
    const auto* grad = next<SoftmaxXentGrad>();
    if (!found.xent->one_hot() || (grad != nullptr && !grad->one_hot())) {
      return no("classes or samples are weighted, or smoothed");
    }
    return loss_of(*found.xent, found.xent->label, grad, grad ? grad->label : Value{});
  }

  template <typename Loss, typename Grad>
  bool loss_of(const Loss& loss, const Value& target, const Grad* grad, const Value& grad_target) {
    if (grad == nullptr) return no("no gradient of the loss");
    const ValueId logits = found.layers.back().linear->y.id, label = found.targets->y.id;
    if (loss.x.id != logits || grad->x.id != logits || target.id != label ||
        grad_target.id != label || loss.scale != grad->scale) {
      return no("loss and gradient are of different things");
    }
    if (grad->loss_scale && !extras.norm) return no("the loss is scaled");
    found.loss_scale = grad->loss_scale;
    counts(loss.tick);
    dy = grad->dx;
    inside(dy);
    return true;
  }

  bool backward() {
    for (size_t l = found.layers.size(); l-- > 0;) {
      MlpStepOps::Layer& layer = found.layers[l];
      if (layer.dropout != nullptr) {
        const auto* op = next<Dropout>();
        if (op == nullptr || op->x.id != dy.id || !same_mask(*op, *layer.dropout)) {
          return no("no gradient of the dropout");
        }
        dy = op->y;
        inside(dy);
      }
      if (layer.activation != nullptr) {
        const auto* op = next<ActivationGrad>();
        const Activation& f = *layer.activation;
        const ValueId saved = saves_output(f.kind) ? f.y.id : f.x.id;
        if (op == nullptr || op->dy.id != dy.id || op->kind != f.kind ||
            op->parameter != f.parameter || op->saved.id != saved) {
          return no("no gradient of the activation");
        }
        dy = op->dx;
        inside(dy);
      }
      if (layer.norm && !norm_gradient(layer.norm)) return false;
      Value dx;
      if (l > 0 || !found.convolutions.empty()) {
        const auto* op = next<LinearGradX>();
        if (op == nullptr || op->dy.id != dy.id || op->w.id != layer.linear->w.id) {
          return no("no gradient of a layer's input");
        }
        dx = op->dx;
        inside(dx);
      }
      const auto* op = next<LinearGradW>();
      if (op == nullptr || op->dy.id != dy.id || op->x.id != layer.linear->x.id ||
          bool(op->db) != bool(layer.linear->b)) {
        return no("no gradient of a layer's weights");
      }
      inside(op->dw);
      inside(op->db);
      grads.push_back(op);
      if (is_used_next(op->dw) && !updates(layer, *layer.linear, *op)) return false;
      dy = dx;
    }
    return found.convolutions.empty() || match_convolution_gradients(*this);
  }

  bool norm_gradient(MlpStepOps::Norm& norm) {
    if (norm.layer != nullptr) {
      return StepMatcher::norm_gradient(norm, *norm.layer, next<LayerNormGrad>());
    }
    if (norm.group != nullptr) {
      return StepMatcher::norm_gradient(norm, *norm.group, next<GroupNormGrad>());
    }
    return StepMatcher::norm_gradient(norm, *norm.batch, next<BatchNormGrad>());
  }

  bool norm() {
    found.norm = extras.norm ? next<GlobalNorm>() : nullptr;
    if (found.norm == nullptr) {
      return !found.loss_scale || no("a loss scale that nothing takes out");
    }
    const GlobalNorm& norm = *found.norm;
    if (norm.loss_scale.id != found.loss_scale.id) return no("loss scales differ");
    size_t count = 0;
    for (const LinearGradW* grad : grads) count += grad->db ? 2 : 1;
    for (const Conv2dGradW* grad : conv_grads) count += grad->db ? 2 : 1;
    for (const NormGrad& grad : norm_grads) count += (grad.dgamma ? 1 : 0) + (grad.dbeta ? 1 : 0);
    if (count != norm.grads.size()) return no("the norm is not of all gradients");
    for (const Value& grad : norm.grads) {
      bool known = false;
      for (const LinearGradW* of : grads) known |= grad.id == of->dw.id || grad.id == of->db.id;
      for (const Conv2dGradW* of : conv_grads)
        known |= grad.id == of->dw.id || grad.id == of->db.id;
      for (const NormGrad& of : norm_grads) {
        known |= grad.id == of.dgamma.id || grad.id == of.dbeta.id;
      }
      if (!known) return no("the norm is not of all gradients");
    }
    inside(norm.scale);
    return true;
  }

  // Matches the updates of layers whose gradients were not used at once, in the same order.
  bool late_updates() {
    for (size_t l = found.layers.size(), k = 0; l-- > 0; ++k) {
      MlpStepOps::Layer& layer = found.layers[l];
      const bool updated = layer.sgd_w != nullptr || layer.adam_w != nullptr;
      if (updated && found.norm != nullptr) return no("an update before the norm");
      if (!late_norm_updates(layer.norm)) return false;
      if (!updated && !updates(layer, *layer.linear, *grads[k])) return false;
    }
    return match_late_convolution_updates(*this);
  }

  static bool same_mask(const Dropout& a, const Dropout& b) {
    return a.mask.p == b.mask.p && a.mask.seed == b.mask.seed && a.mask.layer == b.mask.layer &&
           a.mask.sample_offset == b.mask.sample_offset && a.step.id == b.step.id &&
           a.tick.id == b.tick.id;
  }

  bool ending() {
    found.tick = next<Tick>();
    if (found.tick == nullptr) return no("the step does not end with a tick");
    for (const Value& tick : ticks) {
      if (tick.id != found.tick->tick.id) return no("ops count steps differently");
    }
    for (const Value& step : steps) {
      if (step.id != steps.front().id) return no("ops count steps differently");
      found.step = step;
    }
    return true;
  }

  void inside_only() {
    for (const ValueId id : found.inside) {
      if (!rest.dead_after(rest.program.info(id).value, found.ops)) {
        no(fmt::format("{} is wanted outside the step", rest.program.info(id).name));
        return;
      }
    }
  }
};

}  // namespace

bool StepMatcher::norm_updates(const NormGrad& grad) {
  MlpStepOps::Norm& norm = *grad.norm;
  const bool adam = extras.adam && rest.get<AdamUpdate>(found.ops) != nullptr;
  const auto one = [&](const Value& w, const Value& dw, const SgdUpdate*& sgd,
                       const AdamUpdate*& of_adam) {
    if (!dw) return true;
    if (adam) {
      of_adam = update(w, dw, first_adam);
      if (of_adam != nullptr) counts(of_adam->tick, of_adam->step);
    } else {
      sgd = update(w, dw, first_sgd);
    }
    return of_adam != nullptr || sgd != nullptr;
  };
  const bool all = one(norm.gamma(), grad.dgamma, norm.sgd_gamma, norm.adam_gamma) &&
                   one(norm.beta(), grad.dbeta, norm.sgd_beta, norm.adam_beta);
  if (all && (first_sgd == nullptr || first_adam == nullptr)) return true;
  return no("the gradients of a normalisation are not used by SGD or Adam as they are");
}

bool StepMatcher::late_norm_updates(const MlpStepOps::Norm& norm) {
  const bool updated = norm.sgd_gamma != nullptr || norm.sgd_beta != nullptr ||
                       norm.adam_gamma != nullptr || norm.adam_beta != nullptr;
  for (const NormGrad& grad : norm_grads) {
    if (grad.norm == &norm && !updated) return norm_updates(grad);
  }
  return true;
}

MlpStepOps match_mlp_step(const RemainingOps& rest, MlpStepExtras extras) {
  return Matcher(rest, extras).run();
}

}  // namespace ridgeline
