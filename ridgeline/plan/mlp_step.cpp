#include "ridgeline/plan/mlp_step.h"

#include <utility>

namespace ridgeline {
namespace {

// Matches the ops one after another. Each member returns false, with a refusal, if the program
// differs.
class Matcher {
 public:
  Matcher(const RemainingOps& rest, MlpStepExtras extras) : rest_(rest), extras_(extras) {}

  MlpStepOps run() {
    if (inputs() && forward() && loss() && backward() && norm() && late_updates() && ending()) {
      inside_only();
    }
    return std::move(found_);
  }

 private:
  struct NormGrad {
    MlpStepOps::Layer* layer;
    Value dgamma, dbeta;
  };

  bool no(std::string why) {
    found_.refusal = std::move(why);
    return false;
  }
  // Returns the next op if it is a T, and advances.
  template <typename T>
  const T* next() {
    const T* op = rest_.get<T>(found_.ops);
    if (op != nullptr) ++found_.ops;
    return op;
  }
  void counts(const Value& tick, const Value& step = {}) {
    ticks_.push_back(tick);
    if (step) steps_.push_back(step);
  }
  void inside(const Value& value) {
    if (value) found_.inside.push_back(value.id);
  }

  bool inputs() {
    found_.inputs = next<Gather>();
    if (found_.inputs == nullptr) return no("the step does not begin with a gather");
    found_.targets = next<Gather>();
    if (found_.targets == nullptr) return no("no gather of targets");
    const Gather &x = *found_.inputs, &target = *found_.targets;
    const bool floats = extras_.floats && x.set.dtype == DType::fp32;
    const bool values = extras_.losses && target.set.dtype == DType::fp32;
    if (!is_float(x.y.dtype) || (!floats && x.set.dtype != DType::uint8)) {
      return no(extras_.floats ? "wants samples of uint8 or fp32" : "wants samples of uint8");
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
    Value x = found_.inputs->y;
    while (const auto* linear = next<Linear>()) {
      // A layer applied to every timestep of a sequence sees its input as more rows.
      if (linear->x.id != x.id || linear->w.dtype != x.dtype || linear->n() != found_.batch()) {
        return no("layers are not a chain");
      }
      MlpStepOps::Layer layer{.linear = linear};
      x = linear->y;
      inside(x);
      if (extras_.norms && !normalisation(layer, &x)) return false;
      layer.activation = next<Activation>();
      if (layer.activation != nullptr) {
        if (layer.activation->x.id != x.id) return no("layers are not a chain");
        x = layer.activation->y;
        inside(x);
      }
      layer.dropout = next<Dropout>();
      if (layer.dropout != nullptr) {
        if (!extras_.dropout) return no("outputs are dropped");
        if (layer.dropout->x.id != x.id) return no("layers are not a chain");
        counts(layer.dropout->tick, layer.dropout->step);
        x = layer.dropout->y;
        inside(x);
      }
      found_.layers.push_back(layer);
    }
    if (found_.layers.empty()) return no("no linear layer");
    const MlpStepOps::Layer& last = found_.layers.back();
    if (last.activation != nullptr || last.dropout != nullptr || last.norm) {
      return no("something follows the last linear layer");
    }
    for (size_t l = 0; l + 1 < found_.layers.size(); ++l) {
      if (found_.layers[l].activation == nullptr && !extras_.bare_layers) {
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
    if (extras_.losses && rest_.get<Mse>(found_.ops) != nullptr) {
      found_.mse = next<Mse>();
      const auto* grad = next<MseGrad>();
      return loss_of(*found_.mse, found_.mse->target, grad, grad ? grad->target : Value{});
    }
    if (extras_.losses && rest_.get<ElementwiseLoss>(found_.ops) != nullptr) {
      const ElementwiseLoss& loss = *(found_.elementwise = next<ElementwiseLoss>());
      const auto* grad = next<ElementwiseLossGrad>();
      if (grad != nullptr && (grad->fn != loss.fn || grad->delta != loss.delta ||
                              grad->weights.id != loss.weights.id)) {
        return no("loss and gradient are of different things");
      }
      return loss_of(loss, loss.target, grad, grad ? grad->target : Value{});
    }
    found_.xent = next<SoftmaxXent>();
    if (found_.xent == nullptr) {
      return no(extras_.losses ? "no loss" : "the loss is no softmax cross-entropy");
    }
    const auto* grad = next<SoftmaxXentGrad>();
    if (!found_.xent->one_hot() || (grad != nullptr && !grad->one_hot())) {
      return no("classes are weighted or smoothed");
    }
    return loss_of(*found_.xent, found_.xent->label, grad, grad ? grad->label : Value{});
  }

  template <typename Loss, typename Grad>
  bool loss_of(const Loss& loss, const Value& target, const Grad* grad, const Value& grad_target) {
    if (grad == nullptr) return no("no gradient of the loss");
    const ValueId logits = found_.layers.back().linear->y.id, label = found_.targets->y.id;
    if (loss.x.id != logits || grad->x.id != logits || target.id != label ||
        grad_target.id != label || loss.scale != grad->scale) {
      return no("loss and gradient are of different things");
    }
    if (grad->loss_scale && !extras_.norm) return no("the loss is scaled");
    found_.loss_scale = grad->loss_scale;
    counts(loss.tick);
    dy_ = grad->dx;
    inside(dy_);
    return true;
  }

  bool backward() {
    for (size_t l = found_.layers.size(); l-- > 0;) {
      MlpStepOps::Layer& layer = found_.layers[l];
      if (layer.dropout != nullptr) {
        const auto* op = next<Dropout>();
        if (op == nullptr || op->x.id != dy_.id || !same_mask(*op, *layer.dropout)) {
          return no("no gradient of the dropout");
        }
        dy_ = op->y;
        inside(dy_);
      }
      if (layer.activation != nullptr) {
        const auto* op = next<ActivationGrad>();
        const Activation& f = *layer.activation;
        const ValueId saved = saves_output(f.kind) ? f.y.id : f.x.id;
        if (op == nullptr || op->dy.id != dy_.id || op->kind != f.kind ||
            op->parameter != f.parameter || op->saved.id != saved) {
          return no("no gradient of the activation");
        }
        dy_ = op->dx;
        inside(dy_);
      }
      if (layer.norm && !norm_gradient(layer)) return false;
      Value dx;
      if (l > 0) {
        const auto* op = next<LinearGradX>();
        if (op == nullptr || op->dy.id != dy_.id || op->w.id != layer.linear->w.id) {
          return no("no gradient of a layer's input");
        }
        dx = op->dx;
        inside(dx);
      }
      const auto* op = next<LinearGradW>();
      if (op == nullptr || op->dy.id != dy_.id || op->x.id != layer.linear->x.id ||
          bool(op->db) != bool(layer.linear->b)) {
        return no("no gradient of a layer's weights");
      }
      inside(op->dw);
      inside(op->db);
      grads_.push_back(op);
      if (is_used_next(op->dw) && !updates(layer, *op)) return false;
      dy_ = dx;
    }
    return true;
  }

  bool norm_gradient(MlpStepOps::Layer& layer) {
    const MlpStepOps::Norm& norm = layer.norm;
    if (norm.layer != nullptr) return norm_gradient(layer, *norm.layer, next<LayerNormGrad>());
    if (norm.group != nullptr) return norm_gradient(layer, *norm.group, next<GroupNormGrad>());
    return norm_gradient(layer, *norm.batch, next<BatchNormGrad>());
  }
  template <typename Op, typename Grad>
  bool norm_gradient(MlpStepOps::Layer& layer, const Op& op, const Grad* grad) {
    if (grad == nullptr || grad->x.id != op.x.id || grad->dy.id != dy_.id || !grad->dx ||
        grad->mean.id != op.mean.id || grad->rstd.id != op.rstd.id ||
        grad->gamma.id != op.gamma.id || bool(grad->dgamma) != bool(op.gamma) ||
        bool(grad->dbeta) != bool(op.beta)) {
      return no("no gradient of a normalisation");
    }
    dy_ = grad->dx;
    for (const Value& each : {grad->dx, grad->dgamma, grad->dbeta}) inside(each);
    norm_grads_.push_back({&layer, grad->dgamma, grad->dbeta});
    if (grad->dgamma && is_used_next(grad->dgamma)) return norm_updates(norm_grads_.back());
    return true;
  }

  bool norm() {
    found_.norm = extras_.norm ? next<GlobalNorm>() : nullptr;
    if (found_.norm == nullptr) {
      return !found_.loss_scale || no("a loss scale that nothing takes out");
    }
    const GlobalNorm& norm = *found_.norm;
    if (norm.loss_scale.id != found_.loss_scale.id) return no("loss scales differ");
    size_t count = 0;
    for (const LinearGradW* grad : grads_) count += grad->db ? 2 : 1;
    for (const NormGrad& grad : norm_grads_) count += (grad.dgamma ? 1 : 0) + (grad.dbeta ? 1 : 0);
    if (count != norm.grads.size()) return no("the norm is not of all gradients");
    for (const Value& grad : norm.grads) {
      bool known = false;
      for (const LinearGradW* of : grads_) known |= grad.id == of->dw.id || grad.id == of->db.id;
      for (const NormGrad& of : norm_grads_) {
        known |= grad.id == of.dgamma.id || grad.id == of.dbeta.id;
      }
      if (!known) return no("the norm is not of all gradients");
    }
    inside(norm.scale);
    return true;
  }

  // Matches the updates of layers whose gradients were not used at once, in the same order.
  bool late_updates() {
    for (size_t l = found_.layers.size(), k = 0; l-- > 0; ++k) {
      MlpStepOps::Layer& layer = found_.layers[l];
      const bool updated = layer.sgd_w != nullptr || layer.adam_w != nullptr;
      if (updated && found_.norm != nullptr) return no("an update before the norm");
      for (const NormGrad& grad : norm_grads_) {
        const MlpStepOps::Norm& norm = layer.norm;
        if (grad.layer == &layer && norm.sgd_gamma == nullptr && norm.sgd_beta == nullptr &&
            norm.adam_gamma == nullptr && norm.adam_beta == nullptr && !norm_updates(grad)) {
          return false;
        }
      }
      if (!updated && !updates(layer, *grads_[k])) return false;
    }
    return true;
  }

  static bool same_mask(const Dropout& a, const Dropout& b) {
    return a.mask.p == b.mask.p && a.mask.seed == b.mask.seed && a.mask.layer == b.mask.layer &&
           a.mask.sample_offset == b.mask.sample_offset && a.step.id == b.step.id &&
           a.tick.id == b.tick.id;
  }

  bool is_used_next(const Value& grad) const {
    const auto* sgd = rest_.get<SgdUpdate>(found_.ops);
    const auto* adam = rest_.get<AdamUpdate>(found_.ops);
    return (sgd != nullptr && sgd->dw.id == grad.id) || (adam != nullptr && adam->dw.id == grad.id);
  }
  bool updates(MlpStepOps::Layer& layer, const LinearGradW& grad) {
    const Linear& linear = *layer.linear;
    if (extras_.adam && rest_.get<AdamUpdate>(found_.ops) != nullptr) {
      layer.adam_w = update(linear.w, grad.dw, first_adam_);
      if (layer.adam_w != nullptr) counts(layer.adam_w->tick, layer.adam_w->step);
      if (grad.db) layer.adam_b = update(linear.b, grad.db, first_adam_);
    } else {
      layer.sgd_w = update(linear.w, grad.dw, first_sgd_);
      if (grad.db) layer.sgd_b = update(linear.b, grad.db, first_sgd_);
    }
    const bool all = (layer.sgd_w != nullptr && bool(layer.sgd_b) == bool(grad.db)) ||
                     (layer.adam_w != nullptr && bool(layer.adam_b) == bool(grad.db));
    const bool one_kind = first_sgd_ == nullptr || first_adam_ == nullptr;
    if (all && one_kind) return true;
    return no(extras_.adam ? "the gradients are not used by SGD or Adam as they are"
                           : "the gradients are not used by SGD as they are");
  }

  bool norm_updates(const NormGrad& grad) {
    MlpStepOps::Norm& norm = grad.layer->norm;
    const bool adam = extras_.adam && rest_.get<AdamUpdate>(found_.ops) != nullptr;
    const auto one = [&](const Value& w, const Value& dw, const SgdUpdate*& sgd,
                         const AdamUpdate*& found) {
      if (!dw) return true;
      if (adam) {
        found = update(w, dw, first_adam_);
        if (found != nullptr) counts(found->tick, found->step);
      } else {
        sgd = update(w, dw, first_sgd_);
      }
      return found != nullptr || sgd != nullptr;
    };
    const bool all = one(norm.gamma(), grad.dgamma, norm.sgd_gamma, norm.adam_gamma) &&
                     one(norm.beta(), grad.dbeta, norm.sgd_beta, norm.adam_beta);
    if (all && (first_sgd_ == nullptr || first_adam_ == nullptr)) return true;
    return no("the gradients of a normalisation are not used by SGD or Adam as they are");
  }

  template <typename Update>
  const Update* update(const Value& w, const Value& dw, const Update*& first) {
    const auto* op = next<Update>();
    const Value scale = found_.norm != nullptr ? found_.norm->scale : Value{};
    if (op == nullptr || op->dw.id != dw.id || op->grad_scale.id != scale.id) return nullptr;
    if ((op->copy ? op->copy.id : op->w.id) != w.id) return nullptr;
    found_.copies |= bool(op->copy);
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

  bool ending() {
    found_.tick = next<Tick>();
    if (found_.tick == nullptr) return no("the step does not end with a tick");
    for (const Value& tick : ticks_) {
      if (tick.id != found_.tick->tick.id) return no("ops count steps differently");
    }
    for (const Value& step : steps_) {
      if (step.id != steps_.front().id) return no("ops count steps differently");
      found_.step = step;
    }
    return true;
  }

  void inside_only() {
    for (const ValueId id : found_.inside) {
      if (!rest_.dead_after(rest_.program.info(id).value, found_.ops)) {
        no(fmt::format("{} is wanted outside the step", rest_.program.info(id).name));
        return;
      }
    }
  }

  const RemainingOps& rest_;
  MlpStepExtras extras_;
  MlpStepOps found_;
  Value dy_;
  std::vector<const LinearGradW*> grads_;  // from the top down
  std::vector<NormGrad> norm_grads_;       // in the same order
  const SgdUpdate* first_sgd_ = nullptr;
  const AdamUpdate* first_adam_ = nullptr;
  Values ticks_, steps_;  // counters of the ops
};

}  // namespace

MlpStepOps match_mlp_step(const RemainingOps& rest, MlpStepExtras extras) {
  return Matcher(rest, extras).run();
}

}  // namespace ridgeline
