#include <optional>
#include <vector>

#include "ridgeline/cpu/simd/mlp_step.h"
#include "ridgeline/cpu/simd/row.h"

namespace ridgeline::cpu::simd {
namespace {

// The ops of a training step of a multilayer perceptron, found in a program.
struct MlpOps {
  struct Layer {
    const Linear* linear = nullptr;
    const Activation* activation = nullptr;  // of all but the last
    const SgdUpdate* update_w = nullptr;
    const SgdUpdate* update_b = nullptr;
  };
  const Gather *images = nullptr, *labels = nullptr;
  std::vector<Layer> layers;
  const SoftmaxXent* loss = nullptr;
  const Tick* tick = nullptr;
  std::vector<ValueId> inside;  // every temporary of the step
  size_t ops = 0;
};

// Reads them one after another. Each member returns false, with a reason, where the program is
// something else.
class MlpMatch {
 public:
  explicit MlpMatch(const Rest& rest) : rest_(rest) {}

  bool run() {
    if (!(inputs() && forward() && loss() && backward() && ending())) return false;
    for (const ValueId id : found.inside) {
      if (!rest_.dead_after(rest_.program.info(id).value, found.ops)) {
        return no("a value inside the step is wanted outside");
      }
    }
    return true;
  }

  MlpOps found;
  std::string reason;

 private:
  bool no(std::string why) {
    reason = std::move(why);
    return false;
  }
  // The next op, if it is a T; moves on.
  template <typename T>
  const T* next() {
    const T* op = rest_.get<T>(found.ops);
    if (op != nullptr) ++found.ops;
    return op;
  }
  void inside(const Value& value) {
    if (value) found.inside.push_back(value.id);
  }

  bool inputs() {
    found.images = next<Gather>();
    if (found.images == nullptr) return no("the step does not begin with a gather");
    found.labels = next<Gather>();
    if (found.labels == nullptr) return no("no gather of labels");
    const Gather &images = *found.images, &labels = *found.labels;
    if (images.set.dtype != DType::uint8 || labels.set.dtype != DType::int32) {
      return no("wants uint8 images and int32 labels");
    }
    if (!takes(images.y.dtype)) return no("takes fp32 and fp64 only");
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
    Value x = found.images->y;
    while (const auto* linear = next<Linear>()) {
      if (linear->x.id != x.id || linear->w.dtype != x.dtype) return no("layers are not a chain");
      MlpOps::Layer layer{linear};
      x = linear->y;
      inside(x);
      layer.activation = next<Activation>();
      if (layer.activation != nullptr) {
        if (layer.activation->x.id != x.id) return no("layers are not a chain");
        x = layer.activation->y;
        inside(x);
      }
      found.layers.push_back(layer);
      if (layer.activation == nullptr) break;
    }
    if (found.layers.empty()) return no("no linear layer");
    if (found.layers.back().activation != nullptr) return no("the last layer is not linear");
    return true;
  }

  bool loss() {
    found.loss = next<SoftmaxXent>();
    const auto* grad = found.loss != nullptr ? next<SoftmaxXentGrad>() : nullptr;
    if (grad == nullptr) return no("no softmax cross-entropy with its gradient");
    const SoftmaxXent& loss = *found.loss;
    const ValueId logits = found.layers.back().linear->y.id, label = found.labels->y.id;
    if (loss.x.id != logits || grad->x.id != logits || loss.label.id != label ||
        grad->label.id != label || loss.scale != grad->scale) {
      return no("loss and gradient are of different things");
    }
    dy_ = grad->dx;
    inside(dy_);
    return true;
  }

  bool backward() {
    for (size_t l = found.layers.size(); l-- > 0;) {
      MlpOps::Layer& layer = found.layers[l];
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
    if (op == nullptr || op->w.id != w.id || op->dw.id != dw.id || op->grad_scale) return nullptr;
    const SgdUpdate& first = first_update_ != nullptr ? *first_update_ : *op;
    first_update_ = &first;
    const bool alike = op->momentum == first.momentum && op->weight_decay == first.weight_decay &&
                       op->nesterov == first.nesterov && op->lr.id == first.lr.id;
    return alike ? op : nullptr;
  }

  bool ending() {
    found.tick = next<Tick>();
    if (found.tick == nullptr) return no("the step does not end with a tick");
    const ValueId tick = found.tick->tick.id;
    if (found.images->tick.id != tick || found.loss->tick.id != tick ||
        first_update_->tick.id != tick) {
      return no("ops count steps differently");
    }
    return true;
  }

  const Rest& rest_;
  Value dy_;
  const SgdUpdate* first_update_ = nullptr;
};

template <typename T>
std::vector<MlpLayer<T>> layers_of(const MlpOps& ops, const Binding* binding) {
  std::vector<MlpLayer<T>> layers;
  const auto memory = [&](const Value& value) {
    return binding != nullptr && value ? binding->write(value).template as<T>() : nullptr;
  };
  for (const MlpOps::Layer& layer : ops.layers) {
    const Linear& linear = *layer.linear;
    const Act act = layer.activation != nullptr ? act_of(layer.activation->kind) : Act::none;
    layers.push_back({linear.in(), linear.out(), act, memory(linear.w), memory(linear.b),
                      memory(layer.update_w->m),
                      layer.update_b != nullptr ? memory(layer.update_b->m) : nullptr});
  }
  return layers;
}

template <typename T>
class MlpTrainStep final : public Step {
 public:
  MlpTrainStep(const MlpOps& ops, const Binding& binding)
      : pool_(cpu_runtime(binding.runtime()).pool()),
        n_(ops.images->y.shape[0]),
        scale_(ops.loss->scale),
        step_(layers_of<T>(ops, &binding), n_, pool_.size()) {
    step_.bind(binding.workspace());
    batch_ = {binding.read(ops.images->set).as<uint8_t>(),
              binding.read(ops.labels->set).as<int32_t>(), nullptr, T(ops.images->scale),
              T(ops.images->shift)};
    order_ = binding.read(ops.images->order).as<int32_t>();
    first_ = binding.read(ops.images->first).as<int64_t>();
    const SgdUpdate& update = *ops.layers[0].update_w;
    sgd_ = {0, T(update.momentum), T(update.weight_decay), update.nesterov};
    lr_ = binding.read(update.lr).as<double>();
    loss_ = binding.write(ops.loss->loss).as<double>();
    correct_ = binding.write(ops.loss->correct).as<int32_t>();
    tick_ = binding.write(ops.tick->tick).as<int32_t>();
  }

  void run() override {
    const int32_t tick = *tick_;
    batch_.order = order_ + *first_ + int64_t{tick} * n_;
    sgd_.lr = T(lr_[tick]);
    const MlpScore score = step_.run(pool_, batch_, n_, scale_, sgd_);
    loss_[tick] = scale_ * score.loss;
    if (correct_ != nullptr) correct_[tick] = score.correct;
    *tick_ = tick + 1;
  }

 private:
  ThreadPool& pool_;
  int64_t n_;
  double scale_;
  MlpStep<T> step_;
  MlpBatch<T> batch_{};
  Sgd<T> sgd_;
  const int32_t* order_;
  const int64_t* first_;
  const double* lr_;
  double* loss_;
  int32_t *correct_, *tick_;
};

Cover covers_mlp(const Rest& rest) {
  MlpMatch match(rest);
  if (!match.run()) return Cover::no(match.reason);
  const MlpOps& ops = match.found;
  Cover cover = Cover::of(ops.ops);
  cover.skips = ops.inside;
  const int threads = cpu_runtime(rest.runtime).pool().size();
  cover.workspace = with_type(ops.images->y.dtype, [&](auto zero) {
    using T = decltype(zero);
    return MlpStep<T>(layers_of<T>(ops, nullptr), ops.images->y.shape[0], threads)
        .workspace_bytes();
  });
  return cover;
}

std::unique_ptr<Step> prepare_mlp(const Span& span, const Binding& binding) {
  const Rest rest{span.program, span.begin, binding.runtime()};
  MlpMatch match(rest);
  match.run();
  return with_type(match.found.images->y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    return std::make_unique<MlpTrainStep<decltype(zero)>>(match.found, binding);
  });
}

}  // namespace

Table mlp_rows() {
  Impl row;
  row.name = "cpu.mlp_train.simd";
  row.covers = covers_mlp;
  row.prepare = prepare_mlp;
  return {row};
}

}  // namespace ridgeline::cpu::simd
