#include "ridgeline/plan/mlp_step.h"

#include <utility>

namespace ridgeline {
namespace {

// Reads the ops one after another. Each member returns false, with a refusal, where the program is
// something else.
class Matcher {
 public:
  Matcher(const Rest& rest, MlpStepExtras extras) : rest_(rest), extras_(extras) {}

  MlpStepOps run() {
    if (inputs() && forward() && loss() && backward() && late_updates() && ending()) inside_only();
    return std::move(found_);
  }

 private:
  bool no(std::string why) {
    found_.refusal = std::move(why);
    return false;
  }
  // The next op, if it is a T; moves on.
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
    found_.images = next<Gather>();
    if (found_.images == nullptr) return no("the step does not begin with a gather");
    found_.labels = next<Gather>();
    if (found_.labels == nullptr) return no("no gather of labels");
    const Gather &images = *found_.images, &labels = *found_.labels;
    if (images.set.dtype != DType::uint8 || labels.set.dtype != DType::int32) {
      return no("wants uint8 images and int32 labels");
    }
    if (images.y.shape[0] < 1) return no("empty");
    if (images.order.id != labels.order.id || images.first.id != labels.first.id ||
        images.tick.id != labels.tick.id) {
      return no("images and labels are gathered by different orders");
    }
    inside(images.y);
    inside(labels.y);
    return true;
  }

  bool forward() {
    Value x = found_.images->y;
    while (const auto* linear = next<Linear>()) {
      // A layer of every step of a sequence sees its input as more rows.
      if (linear->x.id != x.id || linear->w.dtype != x.dtype ||
          linear->n() != found_.images->y.shape[0]) {
        return no("layers are not a chain");
      }
      MlpStepOps::Layer layer{linear};
      x = linear->y;
      inside(x);
      layer.activation = next<Activation>();
      if (layer.activation != nullptr) {
        if (layer.activation->x.id != x.id) return no("layers are not a chain");
        x = layer.activation->y;
        inside(x);
        layer.dropout = next<Dropout>();
      }
      if (layer.dropout != nullptr) {
        if (!extras_.dropout) return no("outputs are dropped");
        if (layer.dropout->x.id != x.id) return no("layers are not a chain");
        counts(layer.dropout->tick, layer.dropout->step);
        x = layer.dropout->y;
        inside(x);
      }
      found_.layers.push_back(layer);
      if (layer.activation == nullptr) break;
    }
    if (found_.layers.empty()) return no("no linear layer");
    if (found_.layers.back().activation != nullptr) return no("the last layer is not linear");
    return true;
  }

  bool loss() {
    found_.loss = next<SoftmaxXent>();
    const auto* grad = found_.loss != nullptr ? next<SoftmaxXentGrad>() : nullptr;
    if (grad == nullptr) return no("no softmax cross-entropy with its gradient");
    const SoftmaxXent& loss = *found_.loss;
    const ValueId logits = found_.layers.back().linear->y.id, label = found_.labels->y.id;
    if (loss.x.id != logits || grad->x.id != logits || loss.label.id != label ||
        grad->label.id != label || loss.scale != grad->scale) {
      return no("loss and gradient are of different things");
    }
    if (!loss.one_hot() || !grad->one_hot()) return no("classes are weighted or smoothed");
    if (grad->loss_scale) return no("the loss is scaled");
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

  // Of the layers whose gradients were not used at once, in the same order.
  bool late_updates() {
    for (size_t l = found_.layers.size(), k = 0; l-- > 0; ++k) {
      MlpStepOps::Layer& layer = found_.layers[l];
      const bool updated = layer.update_w != nullptr || layer.adam_w != nullptr;
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
      layer.update_w = update(linear.w, grad.dw, first_sgd_);
      if (grad.db) layer.update_b = update(linear.b, grad.db, first_sgd_);
    }
    const bool all = (layer.update_w != nullptr && bool(layer.update_b) == bool(grad.db)) ||
                     (layer.adam_w != nullptr && bool(layer.adam_b) == bool(grad.db));
    const bool one_kind = first_sgd_ == nullptr || first_adam_ == nullptr;
    if (all && one_kind) return true;
    return no(extras_.adam ? "the gradients are not used by SGD or Adam as they are"
                           : "the gradients are not used by SGD as they are");
  }

  template <typename Update>
  const Update* update(const Value& w, const Value& dw, const Update*& first) {
    const auto* op = next<Update>();
    if (op == nullptr || op->dw.id != dw.id || op->grad_scale) return nullptr;
    if ((op->copy ? op->copy.id : op->w.id) != w.id) return nullptr;
    found_.copies |= bool(op->copy);
    if (first == nullptr) first = op;
    counts(op->tick);
    return alike(*op, *first) ? op : nullptr;
  }
  static bool alike(const SgdUpdate& a, const SgdUpdate& b) {
    return a.momentum == b.momentum && a.weight_decay == b.weight_decay &&
           a.nesterov == b.nesterov && a.lr.id == b.lr.id;
  }
  static bool alike(const AdamUpdate& a, const AdamUpdate& b) {
    return a.beta1 == b.beta1 && a.beta2 == b.beta2 && a.epsilon == b.epsilon &&
           a.weight_decay == b.weight_decay && a.decoupled == b.decoupled && a.lr.id == b.lr.id &&
           a.step.id == b.step.id;
  }

  bool ending() {
    found_.tick = next<Tick>();
    if (found_.tick == nullptr) return no("the step does not end with a tick");
    counts(found_.images->tick);
    counts(found_.loss->tick);
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

  const Rest& rest_;
  MlpStepExtras extras_;
  MlpStepOps found_;
  Value dy_;
  std::vector<const LinearGradW*> grads_;  // from the top down
  const SgdUpdate* first_sgd_ = nullptr;
  const AdamUpdate* first_adam_ = nullptr;
  Values ticks_, steps_;  // that ops count by
};

}  // namespace

MlpStepOps match_mlp_step(const Rest& rest, MlpStepExtras extras) {
  return Matcher(rest, extras).run();
}

}  // namespace ridgeline
