#include <algorithm>
#include <cmath>
#include <vector>

#include "ridgeline/cpu/reference/grad_scale_values.h"
#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

double at_tick(const Tensor& values, const Tensor& tick) {
  return values.as<double>()[*tick.as<int32_t>()];
}

// Stores the working copy of w, from w as it was stored.
void store_copy(Doubles& w, Doubles& copy) {
  if (!copy) return;
  w.load();
  for (int64_t i = 0; i < w.size(); ++i) copy[i] = w[i];
  copy.store();
}

std::unique_ptr<Step> prepare_sgd(const SgdUpdate& op, ReferenceBinding& binding) {
  return make_step([momentum = op.momentum, decay = op.weight_decay, nesterov = op.nesterov,
                    rates = binding.read(op.lr), tick = binding.read(op.tick),
                    grad_scale = binding.read(op.grad_scale), dw = binding.reads(op.dw),
                    m = binding.writes(op.m), w = binding.writes(op.w),
                    copy = binding.writes(op.copy)]() mutable {
    const double lr = at_tick(rates, tick), scale = first_or(grad_scale, 1.0);
    if (scale == 0) return;
    dw.load();
    m.load();
    w.load();
    for (int64_t i = 0; i < w.size(); ++i) {
      double g = dw[i] * scale + decay * w[i];
      if (m) {
        m[i] = momentum * m[i] + g;
        g = nesterov ? g + momentum * m[i] : m[i];
      }
      w[i] -= lr * g;
    }
    m.store();
    w.store();
    store_copy(w, copy);
  });
}

std::unique_ptr<Step> prepare_adam(const AdamUpdate& op, ReferenceBinding& binding) {
  return make_step([beta1 = op.beta1, beta2 = op.beta2, epsilon = op.epsilon,
                    decay = op.weight_decay, decoupled = op.decoupled, rates = binding.read(op.lr),
                    step = binding.read(op.step), tick = binding.read(op.tick),
                    grad_scale = binding.read(op.grad_scale), dw = binding.reads(op.dw),
                    m = binding.writes(op.m), v = binding.writes(op.v), w = binding.writes(op.w),
                    copy = binding.writes(op.copy)]() mutable {
    const double lr = at_tick(rates, tick), scale = first_or(grad_scale, 1.0);
    if (scale == 0) return;
    dw.load();
    m.load();
    v.load();
    w.load();
    const double t = double(*step.as<int64_t>() + *tick.as<int32_t>() + 1);
    const double correction1 = 1.0 - std::pow(beta1, t), correction2 = 1.0 - std::pow(beta2, t);
    for (int64_t i = 0; i < w.size(); ++i) {
      double g = dw[i] * scale;
      if (decoupled) {
        w[i] -= lr * decay * w[i];
      } else {
        g += decay * w[i];
      }
      m[i] += (1.0 - beta1) * (g - m[i]);
      v[i] += (1.0 - beta2) * (g * g - v[i]);
      w[i] -= lr / correction1 * m[i] / (std::sqrt(v[i] / correction2) + epsilon);
    }
    m.store();
    v.store();
    w.store();
    store_copy(w, copy);
  });
}

std::unique_ptr<Step> prepare_global_norm(const GlobalNorm& op, ReferenceBinding& binding) {
  std::vector<Doubles> grads;
  for (const Value& grad : op.grads) grads.push_back(binding.reads(grad));
  return make_step([max_norm = op.max_norm, growth = op.growth,
                    values = GradScaleValues(binding, op), grads = std::move(grads)]() mutable {
    double sum = 0;
    for (Doubles& grad : grads) {
      grad.load();
      for (int64_t i = 0; i < grad.size(); ++i) sum += grad[i] * grad[i];
    }
    values.update(sum, max_norm, growth);
  });
}

std::unique_ptr<Step> prepare_tick(const Tick& op, ReferenceBinding& binding) {
  return make_step([tick = binding.write(op.tick)] { *tick.as<int32_t>() += 1; });
}

}  // namespace

KernelTable update_reference() {
  return {reference_kernel(prepare_sgd), reference_kernel(prepare_adam),
          reference_kernel(prepare_global_norm), reference_kernel(prepare_tick)};
}

}  // namespace ridgeline::cpu
