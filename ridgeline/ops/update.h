#pragma once

#include <fmt/core.h>

#include "ridgeline/ops/value.h"

namespace ridgeline {

// Optimizer steps in PyTorch's forms, with g = dw * grad_scale[0] (1 when absent) and lr =
// lr[tick]. A grad_scale of 0 skips the step: nothing is written. `copy` is the weight in the
// narrower type that products read: the new w, as stored, rounded to that type.

//   g += weight_decay * w;  m = momentum * m + g;  g = nesterov ? g + momentum * m : m;  w -= lr *
//   g
struct SgdUpdate {
  Value w, dw;
  Value m;           // like w in shape; present when momentum != 0
  Value lr;          // [repeats] fp64
  Value tick;        // [1] int32
  Value grad_scale;  // [1] fp64, optional
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
  Value copy{};  // like w in shape, of a narrower type; optional

  static constexpr const char* kName = "sgd_update";
  Values reads() const { return {w, dw, m, lr, tick, grad_scale}; }
  Values writes() const { return {w, m, copy}; }
  std::string attributes() const {
    return fmt::format("momentum={},decay={},nesterov={}", momentum, weight_decay, nesterov);
  }
  double flops() const { return (m ? 6.0 : 4.0) * double(w.shape.numel()); }
  double bytes() const { return 2 * size_of(w) + size_of(dw) + 2 * size_of(m) + size_of(copy); }
};

// Adam; decoupled: AdamW.  t = step[0] + tick[0] + 1 counts this step.
//   decoupled ? w -= lr * weight_decay * w : g += weight_decay * w
//   m += (1-beta1)(g-m);  v += (1-beta2)(g*g-v)
//   w -= lr / (1-beta1^t) * m / (sqrt(v / (1-beta2^t)) + epsilon)
struct AdamUpdate {
  Value w, dw, m, v;
  Value lr;          // [repeats] fp64
  Value step;        // [1] int64, steps done before this launch
  Value tick;        // [1] int32
  Value grad_scale;  // [1] fp64, optional
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool decoupled = false;
  Value copy{};  // as in SgdUpdate

  static constexpr const char* kName = "adam_update";
  Values reads() const { return {w, dw, m, v, lr, step, tick, grad_scale}; }
  Values writes() const { return {w, m, v, copy}; }
  std::string attributes() const {
    return fmt::format("beta1={},beta2={},epsilon={},decay={},decoupled={}", beta1, beta2, epsilon,
                       weight_decay, decoupled);
  }
  double flops() const { return 14.0 * double(w.shape.numel()); }
  double bytes() const {
    return 2 * size_of(w) + size_of(dw) + 2 * size_of(m) + 2 * size_of(v) + size_of(copy);
  }
};

// Computes the factor of all gradients in the updates: clipping by the norm over all of them, and
// removal of the loss scale. With s = loss_scale[0] (1 when absent):
//   norm = sqrt(sum over grads of g*g) / s;  scale = min(1, max_norm / norm) / s
//   clipped += max_norm < norm
// A norm that is not finite makes scale NaN, which the weights then show. With a loss scale the
// step is skipped instead: scale = 0, skipped += 1, and the loss scale changes by
//   not finite: s /= 2, good = 0;  finite: good += 1, and if good == growth: s *= 2, good = 0
// if growth > 0; with growth == 0 it is constant. The arithmetic is in grad_scale.h.
struct GlobalNorm {
  Values grads;
  Value norm;     // [1] fp64
  Value scale;    // [1] fp64
  Value clipped;  // [1] int64, counts the steps that were clipped
  double max_norm = 1;
  // All three are present, or none is.
  Value loss_scale{};  // [1] fp64
  Value good{};        // [1] int64, finite steps since the loss scale last changed
  Value skipped{};     // [1] int64, counts the steps that were skipped
  int64_t growth = 0;

  static constexpr const char* kName = "global_norm";
  Values reads() const {
    Values all = grads;
    for (const Value& value : {clipped, loss_scale, good, skipped}) all.push_back(value);
    return all;
  }
  Values writes() const { return {norm, scale, clipped, loss_scale, good, skipped}; }
  std::string attributes() const { return fmt::format("max={},growth={}", max_norm, growth); }
  double flops() const {
    double flops = 0;
    for (const Value& grad : grads) flops += 2.0 * double(grad.shape.numel());
    return flops;
  }
  double bytes() const { return size_of(grads); }
};

// tick[0] += 1. It ends a step, so that the next one in the same launch uses its own batch and
// rate.
struct Tick {
  Value tick;  // [1] int32

  static constexpr const char* kName = "tick";
  Values reads() const { return {tick}; }
  Values writes() const { return {tick}; }
  std::string attributes() const { return {}; }
  double flops() const { return 0; }
  double bytes() const { return 8; }
};

}  // namespace ridgeline
