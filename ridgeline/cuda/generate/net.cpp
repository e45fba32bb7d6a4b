#include "ridgeline/cuda/generate/net.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace ridgeline::cuda::generate {
namespace {

// Reads the ops one after another. Each member returns false, with a refusal, where the program is
// something else.
class Matcher {
 public:
  explicit Matcher(const Rest& rest) : rest_(rest) {}

  NetStep run() {
    if (rest_.begin != 0) {
      no("covers whole programs only");
    } else if (inputs() && forward() && loss() && backward() && norm() && late_updates() &&
               ending() && types()) {
      inside_only();
    }
    return std::move(found_);
  }

 private:
  bool no(std::string why) {
    found_.refusal = std::move(why);
    return false;
  }
  template <typename T>
  const T* next() {
    const T* op = rest_.get<T>(at_);
    if (op != nullptr) ++at_;
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
    found_.labels = next<Gather>();
    if (found_.labels == nullptr) return no("no gather of labels");
    const Gather &x = *found_.inputs, &labels = *found_.labels;
    if (x.set.dtype != DType::uint8 || !is_float(x.y.dtype)) return no("wants inputs of bytes");
    if (labels.set.dtype != DType::int32 || labels.set.shape.numel() != labels.set.shape[0]) {
      return no("wants one int32 label a sample");
    }
    if (x.y.shape[0] < 1) return no("empty");
    if (x.order.id != labels.order.id || x.first.id != labels.first.id ||
        x.tick.id != labels.tick.id) {
      return no("inputs and labels are gathered by different orders");
    }
    counts(x.tick);
    inside(x.y);
    inside(labels.y);
    return true;
  }

  bool forward() {
    Value x = found_.inputs->y;
    while (const auto* linear = next<Linear>()) {
      if (linear->x.id != x.id || linear->n() != found_.batch()) {
        return no("layers are not a chain");
      }
      NetLayer layer{.linear = linear};
      x = linear->y;
      inside(x);
      layer.activation = next<Activation>();
      if (layer.activation != nullptr) {
        if (layer.activation->x.id != x.id) return no("layers are not a chain");
        x = layer.activation->y;
        inside(x);
      }
      layer.dropout = next<Dropout>();
      if (layer.dropout != nullptr) {
        if (layer.dropout->x.id != x.id) return no("layers are not a chain");
        counts(layer.dropout->tick, layer.dropout->step);
        x = layer.dropout->y;
        inside(x);
      }
      found_.layers.push_back(layer);
    }
    if (found_.layers.empty()) return no("no linear layer");
    const NetLayer& last = found_.layers.back();
    if (last.activation != nullptr || last.dropout != nullptr) {
      return no("something follows the last linear layer");
    }
    output_ = x;
    return true;
  }

  bool loss() {
    const ValueId label = found_.labels->y.id;
    if (const auto* xent = next<SoftmaxXent>()) {
      const auto* grad = next<SoftmaxXentGrad>();
      if (grad == nullptr || xent->x.id != output_.id || grad->x.id != output_.id ||
          xent->label.id != label || grad->label.id != label || xent->scale != grad->scale) {
        return no("loss and gradient are of different things");
      }
      if (!xent->one_hot() || !grad->one_hot()) return no("classes are weighted or smoothed");
      found_.xent = xent;
      found_.loss_scale = grad->loss_scale;
      dy_ = grad->dx;
      counts(xent->tick);
    } else if (const auto* mse = next<Mse>()) {
      const auto* grad = next<MseGrad>();
      if (grad == nullptr || mse->x.id != output_.id || grad->x.id != output_.id ||
          mse->target.id != label || grad->target.id != label || mse->scale != grad->scale) {
        return no("loss and gradient are of different things");
      }
      found_.mse = mse;
      found_.loss_scale = grad->loss_scale;
      dy_ = grad->dx;
      counts(mse->tick);
    } else {
      return no("no loss with its gradient");
    }
    inside(dy_);
    return true;
  }

  bool backward() {
    for (size_t l = found_.layers.size(); l-- > 0;) {
      NetLayer& layer = found_.layers[l];
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

  bool norm() {
    found_.norm = next<GlobalNorm>();
    if (found_.norm == nullptr) {
      return !found_.loss_scale || no("a loss scale that nothing takes out");
    }
    const GlobalNorm& norm = *found_.norm;
    if (norm.loss_scale.id != found_.loss_scale.id) return no("loss scales differ");
    size_t count = 0;
    for (const LinearGradW* grad : grads_) count += grad->db ? 2 : 1;
    if (count != norm.grads.size()) return no("the norm is not of all gradients");
    for (const Value& grad : norm.grads) {
      bool known = false;
      for (const LinearGradW* of : grads_) known |= grad.id == of->dw.id || grad.id == of->db.id;
      if (!known) return no("the norm is not of all gradients");
    }
    inside(norm.scale);
    return true;
  }

  // Of the layers whose gradients were not used at once, in the same order.
  bool late_updates() {
    for (size_t l = found_.layers.size(), k = 0; l-- > 0; ++k) {
      NetLayer& layer = found_.layers[l];
      const bool updated = layer.sgd_w != nullptr || layer.adam_w != nullptr;
      if (updated && found_.norm != nullptr) return no("an update before the norm");
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
    const auto* sgd = rest_.get<SgdUpdate>(at_);
    const auto* adam = rest_.get<AdamUpdate>(at_);
    return (sgd != nullptr && sgd->dw.id == grad.id) || (adam != nullptr && adam->dw.id == grad.id);
  }
  bool updates(NetLayer& layer, const LinearGradW& grad) {
    const Linear& linear = *layer.linear;
    bool all = false;
    if (rest_.get<AdamUpdate>(at_) != nullptr) {
      layer.adam_w = update(linear.w, grad.dw, first_adam_);
      if (grad.db) layer.adam_b = update(linear.b, grad.db, first_adam_);
      all = layer.adam_w != nullptr && bool(layer.adam_b) == bool(grad.db);
      if (all) counts(layer.adam_w->tick, layer.adam_w->step);
    } else {
      layer.sgd_w = update(linear.w, grad.dw, first_sgd_);
      if (grad.db) layer.sgd_b = update(linear.b, grad.db, first_sgd_);
      all = layer.sgd_w != nullptr && bool(layer.sgd_b) == bool(grad.db);
    }
    const bool one_kind = first_sgd_ == nullptr || first_adam_ == nullptr;
    return (all && one_kind) || no("the gradients are not used by SGD or Adam alike in all layers");
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
    if (found_.tick == nullptr || at_ != rest_.size()) return no("covers whole programs only");
    for (const Value& tick : ticks_) {
      if (tick.id != found_.tick->tick.id) return no("ops count steps differently");
    }
    for (const Value& step : steps_) {
      if (step.id != steps_.front().id) return no("ops count steps differently");
      found_.step = step;
    }
    return true;
  }

  static std::optional<Math> math_of(DType dtype, Precision precision) {
    switch (dtype) {
      case DType::bf16:
        return Math::bf16;
      case DType::fp16:
        return Math::fp16;
      case DType::fp32:
        return precision == Precision::tf32 ? Math::tf32 : Math::fp32;
      case DType::fp64:
        return Math::fp64;
      default:
        return {};
    }
  }

  // Weights are of the values' type, or kept in fp32 with copies for products and biases that have
  // none. Gradients are never stored, so that their type does not matter.
  bool types() {
    const DType dtype = found_.inputs->y.dtype;
    const auto math = math_of(dtype, rest_.program.precision);
    if (!math) return no("takes floating-point values only");
    found_.math = *math;
    const DType accumulator = dtype == DType::fp64 ? DType::fp64 : DType::fp32;
    const DType kept = found_.copies ? accumulator : dtype;
    const auto fits = [&](const auto& w, const auto* b) {
      return w.w.dtype == kept && bool(w.copy) == found_.copies &&
             (b == nullptr || (b->w.dtype == kept && !b->copy));
    };
    for (const NetLayer& layer : found_.layers) {
      const bool good = layer.adam_w != nullptr ? fits(*layer.adam_w, layer.adam_b)
                                                : fits(*layer.sgd_w, layer.sgd_b);
      const bool states =
          layer.adam_w != nullptr
              ? layer.adam_w->m.dtype == accumulator && layer.adam_w->v.dtype == accumulator
              : !layer.sgd_w->m || layer.sgd_w->m.dtype == accumulator;
      if (!good || layer.linear->w.dtype != dtype || layer.linear->y.dtype != dtype) {
        return no(
            "wants weights of the values' type, or in fp32 with copies of all but the biases");
      }
      if (!states) return no("wants optimizer state in the type of sums");
    }
    return true;
  }

  void inside_only() {
    for (const ValueId id : found_.inside) {
      if (!rest_.dead_after(rest_.program.info(id).value, at_)) {
        no(fmt::format("{} is wanted outside the step", rest_.program.info(id).name));
        return;
      }
    }
  }

  const Rest& rest_;
  NetStep found_;
  size_t at_ = 0;
  Value output_, dy_;
  std::vector<const LinearGradW*> grads_;  // from the top down
  const SgdUpdate* first_sgd_ = nullptr;
  const AdamUpdate* first_adam_ = nullptr;
  Values ticks_, steps_;  // that ops count by
};

}  // namespace

NetStep match_net_step(const Rest& rest) { return Matcher(rest).run(); }

}  // namespace ridgeline::cuda::generate
