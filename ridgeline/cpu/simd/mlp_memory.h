#pragma once

#include <optional>
#include <vector>

#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/mlp_step.h"
#include "ridgeline/plan/mlp_step.h"

// Helpers of the kernels that run a perceptron's whole training step.
namespace ridgeline::cpu::simd {

// The layers with their weights and momenta; without memory where there is no binding.
template <typename T>
std::vector<MlpLayer<T>> mlp_layers(const MlpStepOps& ops, const Binding* binding) {
  std::vector<MlpLayer<T>> layers;
  const auto memory = [&](const Value& value) {
    return binding != nullptr && value ? binding->write(value).template as<T>() : nullptr;
  };
  for (const MlpStepOps::Layer& layer : ops.layers) {
    const Linear& linear = *layer.linear;
    const SimdActivation act =
        layer.activation != nullptr ? simd_activation(*layer.activation) : SimdActivation();
    MlpLayer<T>& one = layers.emplace_back(
        MlpLayer<T>{linear.in(), linear.out(), act, memory(linear.w), memory(linear.b)});
    if (layer.dropout != nullptr) one.dropout = layer.dropout->mask;
    if (layer.adam_w != nullptr) {
      one.use = GradientUse::adam;
      one.mw = memory(layer.adam_w->m);
      one.vw = memory(layer.adam_w->v);
    } else {
      one.mw = memory(layer.update_w->m);
    }
    if (layer.adam_b != nullptr) {
      one.mb = memory(layer.adam_b->m);
      one.vb = memory(layer.adam_b->v);
    } else if (layer.update_b != nullptr) {
      one.mb = memory(layer.update_b->m);
    }
  }
  return layers;
}

// What a step reads and writes besides its layers: batch, rate, score, tick.
template <typename T>
class MlpStepMemory {
 public:
  MlpStepMemory(const MlpStepOps& ops, const Binding& binding)
      : n_(ops.images->y.shape[0]), scale_(ops.loss->scale) {
    batch_ = {binding.read(ops.images->set).as<uint8_t>(),
              binding.read(ops.labels->set).as<int32_t>(), nullptr, T(ops.images->scale),
              T(ops.images->shift)};
    order_ = binding.read(ops.images->order).as<int32_t>();
    first_ = binding.read(ops.images->first).as<int64_t>();
    if (const SgdUpdate* update = ops.layers[0].update_w) {
      iteration_.sgd = {0, T(update->momentum), T(update->weight_decay), update->nesterov};
      lr_ = binding.read(update->lr).as<double>();
    } else {
      adam_ = *ops.layers[0].adam_w;
      lr_ = binding.read(adam_->lr).as<double>();
    }
    step_ = binding.read(ops.step).as<int64_t>();
    loss_ = binding.write(ops.loss->loss).as<double>();
    correct_ = binding.write(ops.loss->correct).as<int32_t>();
    tick_ = binding.write(ops.tick->tick).as<int32_t>();
  }

  // One step: MlpScore step(batch, n, scale, iteration)
  template <typename F>
  void run(F step) {
    const int32_t tick = *tick_;
    batch_.order = order_ + *first_ + int64_t{tick} * n_;
    iteration_.sgd.lr = T(lr_[tick]);
    if (step_ != nullptr) iteration_.step = uint64_t(*step_ + tick);
    if (adam_) iteration_.adam = Adam<T>(*adam_, lr_[tick], int64_t(iteration_.step) + 1);
    const MlpScore score = step(batch_, n_, scale_, iteration_);
    loss_[tick] = scale_ * score.loss;
    if (correct_ != nullptr) correct_[tick] = score.correct;
    *tick_ = tick + 1;
  }

 private:
  int64_t n_;
  double scale_;
  MlpBatch<T> batch_{};
  MlpIteration<T> iteration_;
  std::optional<AdamUpdate> adam_;
  const int32_t* order_;
  const int64_t *first_, *step_;  // step_: null without
  const double* lr_;
  double* loss_;
  int32_t *correct_, *tick_;
};

}  // namespace ridgeline::cpu::simd
