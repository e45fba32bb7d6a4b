#include <vector>

#include "ridgeline/cpu/simd/mlp_step.h"
#include "ridgeline/cpu/simd/row.h"
#include "ridgeline/plan/mlp_step.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename T>
std::vector<MlpLayer<T>> layers_of(const MlpStepOps& ops, const Binding* binding) {
  std::vector<MlpLayer<T>> layers;
  const auto memory = [&](const Value& value) {
    return binding != nullptr && value ? binding->write(value).template as<T>() : nullptr;
  };
  for (const MlpStepOps::Layer& layer : ops.layers) {
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
  MlpTrainStep(const MlpStepOps& ops, const Binding& binding)
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
  const MlpStepOps ops = match_mlp_step(rest);
  if (!ops.refusal.empty()) return Cover::no(ops.refusal);
  if (ops.copies) return Cover::no("takes no copies of weights");
  if (!takes(ops.images->y.dtype)) return Cover::no("takes fp32 and fp64 only");
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
  const MlpStepOps ops = match_mlp_step({span.program, span.begin, binding.runtime()});
  return with_type(ops.images->y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    return std::make_unique<MlpTrainStep<decltype(zero)>>(ops, binding);
  });
}

}  // namespace

Table mlp_rows() {
  Impl row;
  row.name = "cpu.mlp_train.simd";
  row.covers = covers_mlp;
  row.prepare = prepare_mlp;
  return {row, mlp_gradients_row()};
}

}  // namespace ridgeline::cpu::simd
