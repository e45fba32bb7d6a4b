#include "ridgeline/plan/mlp_step.h"

#include <utility>

namespace ridgeline {
namespace {

// Reads the ops one after another. Each member returns false, with a refusal, where the program is
// something else.
class Matcher {
 public:
  explicit Matcher(const Rest& rest) : rest_(rest) {}

  MlpStepOps run() {
    if (inputs() && forward() && loss() && backward() && ending()) inside_only();
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
    if (grad->loss_scale) return no("the loss is scaled");
    dy_ = grad->dx;
    inside(dy_);
    return true;
  }

  bool backward() {
    for (size_t l = found_.layers.size(); l-- > 0;) {
      MlpStepOps::Layer& layer = found_.layers[l];
      if (layer.activation != nullptr) {
        const auto* op = next<ActivationGrad>();
        const Activation& f = *layer.activation;
        const ValueId saved = saves_output(f.kind) ? f.y.id : f.x.id;
        if (op == nullptr || op->dy.id != dy_.id || op->kind != f.kind || op->saved.id != saved) {
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
      layer.update_w = update(layer.linear->w, op->dw);
      if (layer.update_w == nullptr) return no("the gradients are not used by SGD at once");
      if (op->db) {
        layer.update_b = update(layer.linear->b, op->db);
        if (layer.update_b == nullptr) return no("the gradients are not used by SGD at once");
      }
      dy_ = dx;
    }
    return true;
  }

  const SgdUpdate* update(const Value& w, const Value& dw) {
    const auto* op = next<SgdUpdate>();
    if (op == nullptr || op->dw.id != dw.id || op->grad_scale) return nullptr;
    if ((op->copy ? op->copy.id : op->w.id) != w.id) return nullptr;
    found_.copies |= bool(op->copy);
    const SgdUpdate& first = first_update_ != nullptr ? *first_update_ : *op;
    first_update_ = &first;
    const bool alike = op->momentum == first.momentum && op->weight_decay == first.weight_decay &&
                       op->nesterov == first.nesterov && op->lr.id == first.lr.id;
    return alike ? op : nullptr;
  }

  bool ending() {
    found_.tick = next<Tick>();
    if (found_.tick == nullptr) return no("the step does not end with a tick");
    const ValueId tick = found_.tick->tick.id;
    if (found_.images->tick.id != tick || found_.loss->tick.id != tick ||
        first_update_->tick.id != tick) {
      return no("ops count steps differently");
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
  MlpStepOps found_;
  Value dy_;
  const SgdUpdate* first_update_ = nullptr;
};

}  // namespace

MlpStepOps match_mlp_step(const Rest& rest) { return Matcher(rest).run(); }

}  // namespace ridgeline
