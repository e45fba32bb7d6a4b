#include "ridgeline/cuda/mlp_match.h"

#include <fmt/format.h>

#include <utility>

namespace ridgeline::cuda {
namespace {

// Reads the ops one after another. Each member returns false, with a refusal, where the program is
// something else.
class Matcher {
 public:
  explicit Matcher(const Rest& rest) : rest_(rest) {}

  MlpStepOps run() {
    if (rest_.begin != 0) {
      no("covers whole programs only");
    } else if (inputs() && forward() && loss() && backward() && ending()) {
      inside_only();
    }
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
  void inside(const Value& value) { found_.inside.push_back(value.id); }

  bool inputs() {
    const auto *images = next<Gather>(), *labels = next<Gather>();
    if (images == nullptr || labels == nullptr) return no("does not begin with two gathers");
    if (images->set.dtype != DType::uint8 || labels->set.dtype != DType::int32) {
      return no("wants uint8 images and int32 labels");
    }
    if (images->order.id != labels->order.id || images->first.id != labels->first.id ||
        images->tick.id != labels->tick.id) {
      return no("images and labels are gathered by different orders");
    }
    found_.images = images;
    found_.labels = labels;
    inside(images->y);
    inside(labels->y);
    return true;
  }

  bool forward() {
    Value x = found_.images->y;
    for (;;) {
      const auto* linear = next<Linear>();
      if (linear == nullptr || linear->x.id != x.id) return no("wants layer after layer");
      if (!linear->b) return no("wants a bias in every layer");
      inside(linear->y);
      found_.layers.push_back({linear, nullptr, nullptr});
      outputs_.push_back(linear->y);
      const auto* activation = next<Activation>();
      if (activation == nullptr) return true;
      if (activation->x.id != linear->y.id) return no("wants an activation of each layer");
      if (found_.layers.size() > 1 && activation->kind != found_.activation) {
        return no("wants one kind of activation");
      }
      if (!saves_output(activation->kind)) return no("takes no gelu");
      found_.activation = activation->kind;
      inside(activation->y);
      outputs_.back() = x = activation->y;
    }
  }

  bool loss() {
    const auto* loss = next<SoftmaxXent>();
    const auto* grad = loss != nullptr ? next<SoftmaxXentGrad>() : nullptr;
    if (grad == nullptr) return no("wants softmax cross-entropy and its gradient");
    const double mean = 1.0 / double(found_.images->y.shape[0]);
    if (loss->scale != mean || grad->scale != mean) return no("wants the mean over its own batch");
    if (loss->x.id != outputs_.back().id || grad->x.id != loss->x.id ||
        loss->label.id != found_.labels->y.id || grad->label.id != loss->label.id) {
      return no("the loss is of something else");
    }
    found_.loss = loss;
    inside(grad->dx);
    dy_ = grad->dx;
    return true;
  }

  bool backward() {
    for (size_t i = found_.layers.size(); i-- > 0;) {
      MlpStepOps::Layer& layer = found_.layers[i];
      if (i + 1 < found_.layers.size()) {
        const auto* grad = next<ActivationGrad>();
        if (grad == nullptr || grad->saved.id != outputs_[i].id || grad->dy.id != dy_.id) {
          return no("wants the activation's gradient");
        }
        inside(dy_ = grad->dx);
      }
      Value dx;
      if (i > 0) {
        const auto* grad_x = next<LinearGradX>();
        if (grad_x == nullptr || grad_x->dy.id != dy_.id || grad_x->w.id != layer.linear->w.id) {
          return no("wants the gradient by each layer's input");
        }
        inside(dx = grad_x->dx);
      }
      const auto* grad_w = next<LinearGradW>();
      if (grad_w == nullptr || !grad_w->db || grad_w->dy.id != dy_.id ||
          grad_w->x.id != layer.linear->x.id) {
        return no("wants the gradient of each layer");
      }
      inside(grad_w->dw);
      inside(grad_w->db);
      layer.update_w = next<SgdUpdate>();
      layer.update_b = layer.update_w != nullptr ? next<SgdUpdate>() : nullptr;
      if (!updates(layer, *grad_w)) return false;
      dy_ = dx;
    }
    return true;
  }

  bool updates(const MlpStepOps::Layer& layer, const LinearGradW& grad) {
    const auto plain = [&](const SgdUpdate* op, const Value& w, const Value& dw) {
      return op != nullptr && op->w.id == w.id && op->dw.id == dw.id && !op->m && !op->grad_scale &&
             op->tick.id == found_.images->tick.id;
    };
    if (!plain(layer.update_w, layer.linear->w, grad.dw) ||
        !plain(layer.update_b, layer.linear->b, grad.db)) {
      return no("wants SGD without momentum or clipping, layer by layer");
    }
    const SgdUpdate& first = *found_.layers.back().update_w;
    if (layer.update_w->lr.id != first.lr.id || layer.update_b->lr.id != first.lr.id ||
        layer.update_w->weight_decay != first.weight_decay) {
      return no("wants one learning rate and decay");
    }
    if (layer.update_b->weight_decay != 0) return no("takes no decay of biases");
    return true;
  }

  bool ending() {
    found_.tick = next<Tick>();
    if (found_.tick == nullptr || found_.ops != rest_.size() ||
        found_.tick->tick.id != found_.images->tick.id ||
        found_.loss->tick.id != found_.tick->tick.id) {
      return no("more follows the updates than a tick");
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
  std::vector<Value> outputs_;  // of each layer, after its activation
  Value dy_;
};

}  // namespace

MlpStepOps match_mlp_step(const Rest& rest) { return Matcher(rest).run(); }

}  // namespace ridgeline::cuda
