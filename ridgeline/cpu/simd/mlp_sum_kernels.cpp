#include <algorithm>
#include <map>
#include <optional>

#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/mlp_step.h"
#include "ridgeline/plan/mlp_step.h"

// A rank's share of a perceptron's training step up to its gradients, and their sums: like
// cpu.mlp_train.simd, with communication between gradient and update.
namespace ridgeline::cpu::simd {
namespace {

// The step as a single process would run it: each layer's gradients used at once. Other kernels
// handle the ops after the last start (clipping, Adam).
struct AloneStep {
  Program program;
  std::vector<const AllReduceStart*> starts;  // of the ranks' program, from the top layer down
  size_t ops = 0;                             // of the ranks' program, up to the last start
  std::string refusal;
};

AloneStep alone_step(const RemainingOps& rest) {
  AloneStep alone;
  const Program& program = rest.program;
  const auto refuse = [&](const char* why) {
    alone.refusal = why;
    return alone;
  };
  if (rest.begin != 0 || rest.get<Gather>(0) == nullptr)
    return refuse("the next op begins no step");
  Value lr, tick;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (const auto* start = rest.get<AllReduceStart>(i)) {
      alone.starts.push_back(start);
      alone.ops = i + 1;
    }
    if (const auto* sgd = rest.get<SgdUpdate>(i)) lr = sgd->lr, tick = sgd->tick;
    if (const auto* adam = rest.get<AdamUpdate>(i)) lr = adam->lr, tick = adam->tick;
  }
  if (alone.starts.empty() || !lr) return refuse("no gradients are added up over ranks");
  alone.program.values = program.values;
  alone.program.precision = program.precision;
  alone.program.repeats = program.repeats;
  // A gradient belongs to the weight that its layer's Linear reads.
  std::map<ValueId, const Linear*> layer_of;  // by the layer's input
  for (size_t i = 0; i < alone.ops; ++i) {
    if (const auto* linear = rest.get<Linear>(i)) layer_of[linear->x.id] = linear;
  }
  for (size_t i = 0; i < alone.ops; ++i) {
    if (rest.get<AllReduceStart>(i) != nullptr) continue;
    alone.program.add(program.ops[i]);
    const auto* grad = rest.get<LinearGradW>(i);
    if (grad == nullptr) continue;
    const auto layer = layer_of.find(grad->x.id);
    if (layer == layer_of.end()) return refuse("a gradient of no linear layer");
    alone.program.add(SgdUpdate{layer->second->w, grad->dw, {}, lr, tick, {}});
    if (grad->db) alone.program.add(SgdUpdate{layer->second->b, grad->db, {}, lr, tick, {}});
  }
  alone.program.add(Tick{tick});
  return alone;
}

// Checks that the starts have exactly the gradients of the step.
bool same_gradients(const AloneStep& alone, const MlpStepOps& ops) {
  std::vector<ValueId> summed, made;
  for (const AllReduceStart* start : alone.starts) {
    for (const Value& grad : start->grads) summed.push_back(grad.id);
  }
  for (const MlpStepOps::Layer& layer : ops.layers) {
    made.push_back(layer.sgd_w->dw.id);
    if (layer.sgd_b != nullptr) made.push_back(layer.sgd_b->dw.id);
  }
  std::sort(summed.begin(), summed.end());
  std::sort(made.begin(), made.end());
  return summed == made;
}

// Gradients take the place of the momentum: they are written there directly, or by SGD with a
// momentum and a rate of 0, which leaves the weights unchanged bit for bit.
template <typename T>
std::vector<MlpLayer<T>> layers_of(const MlpStepOps& ops, const Binding* binding) {
  std::vector<MlpLayer<T>> layers;
  const auto read = [&](const Value& value) {
    return binding != nullptr && value ? binding->read(value).template as<T>() : nullptr;
  };
  const auto write = [&](const Value& value) {
    return binding != nullptr && value ? binding->write(value).template as<T>() : nullptr;
  };
  for (const MlpStepOps::Layer& layer : ops.layers) {
    const Linear& linear = *layer.linear;
    const SimdActivation act =
        layer.activation != nullptr ? simd_activation(*layer.activation) : SimdActivation();
    layers.push_back(
        {linear.in(), linear.out(), act, read(linear.w), read(linear.b), write(layer.sgd_w->dw),
         layer.sgd_b != nullptr ? write(layer.sgd_b->dw) : nullptr, GradientUse::stored});
    if (layer.dropout != nullptr) layers.back().dropout = layer.dropout->mask;
  }
  return layers;
}

template <typename T>
class MlpGradientStep final : public Step {
 public:
  MlpGradientStep(const AloneStep& alone, const MlpStepOps& ops, const Binding& binding)
      : pool_(cpu_runtime(binding.runtime()).pool()),
        ranks_(binding.runtime().ranks()),
        n_(ops.inputs->y.shape[0]),
        scale_(ops.xent->scale),
        step_(layers_of<T>(ops, &binding), n_, pool_.size()) {
    step_.bind(binding.workspace());
    batch_ = {binding.read(ops.inputs->set).template as<uint8_t>(),
              binding.read(ops.targets->set).template as<int32_t>(), nullptr, T(ops.inputs->scale),
              T(ops.inputs->shift)};
    order_ = binding.read(ops.inputs->order).template as<int32_t>();
    first_ = binding.read(ops.inputs->first).template as<int64_t>();
    loss_ = binding.write(ops.xent->loss).template as<double>();
    correct_ = binding.write(ops.xent->correct).template as<int32_t>();
    tick_ = binding.read(ops.tick->tick).template as<int32_t>();
    step_number_ = binding.read(ops.step).template as<int64_t>();
    for (const AllReduceStart* start : alone.starts) {
      for (size_t k = 0; k < start->grads.size(); ++k) {
        sums_.push_back({binding.write(start->grads[k]).template as<T>(),
                         binding.write(start->sums[k]).template as<T>(),
                         start->grads[k].shape.numel()});
      }
      tokens_.push_back(binding.write(start->token).template as<int64_t>());
      wire_ = start->wire;
    }
  }

  void run() override {
    const int32_t tick = *tick_;
    batch_.order = order_ + *first_ + int64_t{tick} * n_;
    if (step_.shares_batch()) {  // 0 times the old contents must be 0
      for (const Sum& sum : sums_) std::fill_n(sum.from, sum.count, T(0));
    }
    MlpIteration<T> iteration;
    if (step_number_ != nullptr) iteration.step = uint64_t(*step_number_ + tick);
    const MlpScore score = step_.run(pool_, batch_, n_, scale_, iteration);
    loss_[tick] = scale_ * score.loss;
    if (correct_ != nullptr) correct_[tick] = score.correct;
    for (const Sum& sum : sums_) add_up(sum);
    for (int64_t* token : tokens_) *token = 0;
  }

 private:
  struct Sum {
    T *from, *to;
    int64_t count;
  };

  void add_up(const Sum& sum) {
    if (ranks_ != nullptr) {
      ranks_->all_reduce(sum.from, sum.to, sum.count, dtype_of<T>(), Reduce::sum, wire_);
    } else if (wire_ == DType::bf16 && sizeof(T) == 4) {
      for (int64_t i = 0; i < sum.count; ++i) sum.to[i] = T(float(Bf16(float(sum.from[i]))));
    } else {
      std::copy_n(sum.from, sum.count, sum.to);
    }
  }

  ThreadPool& pool_;
  Communicator* ranks_;
  int64_t n_;
  double scale_;
  MlpStep<T> step_;
  MlpBatch<T> batch_{};
  std::vector<Sum> sums_;
  std::vector<int64_t*> tokens_;
  DType wire_ = DType::fp32;
  const int32_t *order_, *tick_;
  const int64_t *first_, *step_number_;  // the latter null without dropout
  double* loss_;
  int32_t* correct_;
};

constexpr MlpStepExtras kExtras{.dropout = true};

Cover covers_mlp_sum(const RemainingOps& rest) {
  const AloneStep alone = alone_step(rest);
  if (!alone.refusal.empty()) return Cover::no(alone.refusal);
  const MlpStepOps ops = match_mlp_step({alone.program, 0, rest.runtime}, kExtras);
  if (!ops.refusal.empty()) return Cover::no(ops.refusal);
  if (!takes(ops.inputs->y.dtype)) return Cover::no("takes fp32 and fp64 only");
  if (!same_gradients(alone, ops)) return Cover::no("other gradients are added up");
  Cover cover = Cover::of(alone.ops);
  for (const ValueId id : ops.inside) {
    bool gradient = false;
    for (const AllReduceStart* start : alone.starts) {
      for (const Value& grad : start->grads) gradient |= grad.id == id;
    }
    if (!gradient) cover.skips.push_back(id);
  }
  const int threads = cpu_runtime(rest.runtime).pool().size();
  cover.workspace = with_type(ops.inputs->y.dtype, [&](auto zero) {
    using T = decltype(zero);
    return MlpStep<T>(layers_of<T>(ops, nullptr), ops.inputs->y.shape[0], threads)
        .workspace_bytes();
  });
  return cover;
}

std::unique_ptr<Step> prepare_mlp_sum(const Span& span, const Binding& binding) {
  const AloneStep alone = alone_step({span.program, span.begin, binding.runtime()});
  const MlpStepOps ops = match_mlp_step({alone.program, 0, binding.runtime()}, kExtras);
  return with_type(ops.inputs->y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    return std::make_unique<MlpGradientStep<decltype(zero)>>(alone, ops, binding);
  });
}

}  // namespace

Kernel mlp_gradients_kernel() {
  Kernel kernel;
  kernel.name = "cpu.mlp_gradients_all_reduce.simd";
  kernel.covers = covers_mlp_sum;
  kernel.prepare = prepare_mlp_sum;
  return kernel;
}

}  // namespace ridgeline::cpu::simd
