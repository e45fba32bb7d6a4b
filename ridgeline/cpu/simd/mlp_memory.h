#pragma once

#include <optional>
#include <vector>

#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/mlp_step.h"
#include "ridgeline/ops/grad_scale.h"
#include "ridgeline/plan/mlp_step.h"

// Helpers of the kernels that run a perceptron's whole training step.
namespace ridgeline::cpu::simd {

// Returns a normalisation with its weights and their state; without a binding, without memory.
template <typename T>
MlpNorm<T> mlp_norm(const MlpStepOps::Norm& ops, const Binding* binding) {
  MlpNorm<T> norm;
  if (!ops) return norm;
  const auto memory = [&](const Value& value) {
    return binding != nullptr && value ? binding->write(value).template as<T>() : nullptr;
  };
  norm.over = ops.batch != nullptr ? MlpNorm<T>::Over::batch : MlpNorm<T>::Over::sample;
  norm.centred = ops.centred();
  norm.epsilon = ops.epsilon();
  norm.gamma = memory(ops.gamma());
  norm.beta = memory(ops.beta());
  if (ops.adam_gamma != nullptr) {
    norm.m_gamma = memory(ops.adam_gamma->m);
    norm.v_gamma = memory(ops.adam_gamma->v);
  } else if (ops.sgd_gamma != nullptr) {
    norm.m_gamma = memory(ops.sgd_gamma->m);
  }
  if (ops.adam_beta != nullptr) {
    norm.m_beta = memory(ops.adam_beta->m);
    norm.v_beta = memory(ops.adam_beta->v);
  } else if (ops.sgd_beta != nullptr) {
    norm.m_beta = memory(ops.sgd_beta->m);
  }
  if (ops.batch == nullptr) return norm;
  norm.momentum = ops.batch->momentum;
  norm.running_mean = memory(ops.batch->running_mean);
  norm.running_var = memory(ops.batch->running_var);
  if (binding != nullptr) norm.batches = binding->write(ops.batch->batches).template as<int64_t>();
  return norm;
}

// Returns the layers with their weights and momenta; without a binding, without memory.
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
    one.norm = mlp_norm<T>(layer.norm, binding);
    if (layer.adam_w != nullptr) {
      one.use = GradientUse::adam;
      one.mw = memory(layer.adam_w->m);
      one.vw = memory(layer.adam_w->v);
    } else {
      one.mw = memory(layer.sgd_w->m);
    }
    if (layer.adam_b != nullptr) {
      one.mb = memory(layer.adam_b->m);
      one.vb = memory(layer.adam_b->v);
    } else if (layer.sgd_b != nullptr) {
      one.mb = memory(layer.sgd_b->m);
    }
  }
  return layers;
}

// Returns the loss; without a binding, without memory.
inline MlpLoss mlp_loss_of(const MlpStepOps& ops, const Binding* binding) {
  MlpLoss loss;
  if (ops.xent != nullptr) return loss;
  const Value& target = ops.targets->y;
  if (target.dtype != DType::int32) loss.columns = target.shape.numel() / target.shape[0];
  loss.kind = MlpLoss::Kind::mse;
  if (const ElementwiseLoss* op = ops.elementwise) {
    loss.kind = MlpLoss::Kind::elementwise;
    loss.fn = op->fn;
    loss.delta = op->delta;
    loss.weight_count = op->weights ? op->weights.shape.numel() : 0;
    if (binding != nullptr) loss.weights = binding->read(op->weights).as<double>();
  }
  return loss;
}

// A step's operands besides its layers: batch, rate, score, tick.
template <typename T>
class MlpStepMemory {
 public:
  MlpStepMemory(const MlpStepOps& ops, const Binding& binding) : n_(ops.inputs->y.shape[0]) {
    const Tensor inputs = binding.read(ops.inputs->set), targets = binding.read(ops.targets->set);
    batch_.scale = T(ops.inputs->scale);
    batch_.shift = T(ops.inputs->shift);
    if (inputs.dtype == DType::fp32) {
      batch_.floats = inputs.as<float>();
    } else {
      batch_.set = inputs.as<uint8_t>();
    }
    if (targets.dtype == DType::fp32) {
      batch_.targets = targets.as<float>();
    } else {
      batch_.labels = targets.as<int32_t>();
    }
    order_ = binding.read(ops.inputs->order).as<int32_t>();
    first_ = binding.read(ops.inputs->first).as<int64_t>();
    if (const SgdUpdate* update = ops.layers[0].sgd_w) {
      iteration_.sgd = {0, T(update->momentum), T(update->weight_decay), update->nesterov};
      lr_ = binding.read(update->lr).as<double>();
    } else {
      adam_ = *ops.layers[0].adam_w;
      lr_ = binding.read(adam_->lr).as<double>();
    }
    step_ = binding.read(ops.step).as<int64_t>();
    if (ops.xent != nullptr) take_loss(*ops.xent, binding);
    if (ops.mse != nullptr) take_loss(*ops.mse, binding);
    if (ops.elementwise != nullptr) take_loss(*ops.elementwise, binding);
    if (ops.norm != nullptr) {
      max_norm_ = ops.norm->max_norm;
      norm_ = binding.write(ops.norm->norm).as<double>();
      clipped_ = binding.write(ops.norm->clipped).as<int64_t>();
    }
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
    if (norm_ != nullptr) {
      GradScale scale{.clipped = *clipped_};
      scale.update(score.squares, max_norm_, false, 0);
      *norm_ = scale.norm;
      *clipped_ = scale.clipped;
    }
    *tick_ = tick + 1;
  }

 private:
  template <typename Loss>
  void take_loss(const Loss& loss, const Binding& binding) {
    scale_ = loss.scale;
    loss_ = binding.write(loss.loss).template as<double>();
    correct_ = binding.write(loss.correct).template as<int32_t>();
  }

  int64_t n_;
  double scale_ = 1;
  MlpBatch<T> batch_{};
  MlpIteration<T> iteration_;
  std::optional<AdamUpdate> adam_;
  const int32_t* order_;
  const int64_t *first_, *step_;  // step_: null without
  const double* lr_;
  double* loss_;
  int32_t *correct_, *tick_;
  double max_norm_ = 0;
  double* norm_ = nullptr;  // null if gradients are not clipped
  int64_t* clipped_ = nullptr;
};

}  // namespace ridgeline::cpu::simd
