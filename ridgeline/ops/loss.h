#pragma once

#include <fmt/core.h>

#include <string_view>

#include "ridgeline/ops/value.h"

namespace ridgeline {

// Losses write one number a step, at loss[tick], so that many steps can run before the host reads.
// `scale` is 1 over the *global* batch (and, for Mse, over the outputs), so ranks' losses add up.
//
// With sample_weights v[m], n being a multiple of m, the loss and the gradient of row r are
// multiplied by v[r / (n / m)]: the rows of one sample, its timesteps, have the same weight.

// loss[tick] = scale * sum_r (logsumexp(x[r]) - x[r, label[r]])
// correct[tick] = number of samples whose largest x is first reached at label[r]
//
// With class weights w and label smoothing s, as PyTorch defines them, t being the target of class
// c in row r and f a factor that makes a weighted mean of the rows:
//   t = (1 - s) * w[label[r]] * (c == label[r]) + s / classes * w[c]
//   f = n / sum_r w[label[r]]
//   loss[tick] = scale * f * sum_r sum_c t * (logsumexp(x[r]) - x[r, c])
// Without weights every w is 1, and f is 1. The sum in f is of this rank's rows, so that over
// several ranks each share of the batch is a weighted mean of its own, as in PyTorch's
// DistributedDataParallel. If it is 0, the loss is 0 / 0, as in PyTorch.
struct SoftmaxXent {
  Value x;        // [n, classes]
  Value label;    // [n] int32
  Value tick;     // [1] int32
  Value loss;     // [repeats] fp64
  Value correct;  // [repeats] int32, optional
  double scale = 1;
  Value weights{};         // [classes] fp64, optional
  double smoothing = 0;    // s
  Value sample_weights{};  // [m] of x's type, optional

  // Each row's target is a single class, and all rows have the same weight.
  bool one_hot() const { return !weights && !sample_weights && smoothing == 0; }

  static constexpr const char* kName = "softmax_xent";
  Values reads() const { return {x, label, tick, weights, sample_weights}; }
  Values writes() const { return {loss, correct}; }
  std::string attributes() const { return loss_attributes(scale, smoothing); }
  static std::string loss_attributes(double scale, double smoothing) {
    return smoothing == 0 ? fmt::format("scale={}", scale)
                          : fmt::format("scale={},smoothing={}", scale, smoothing);
  }
  double flops() const { return (one_hot() ? 22.0 : 24.0) * double(x.shape.numel()); }
  double bytes() const {
    return size_of(x) + size_of(label) + size_of(weights) + size_of(sample_weights) + 12;
  }
};

// The gradients are multiplied by loss_scale[0], if present, so that small ones survive in fp16;
// the updates divide it out again (GlobalNorm, update.h).

// dx[r, c] = scale * (softmax(x[r])[c] - (c == label[r])); with weights or smoothing
// dx[r, c] = scale * f * (softmax(x[r])[c] * sum_c t - t)
struct SoftmaxXentGrad {
  Value x, label, dx;
  double scale = 1;
  Value loss_scale{};    // [1] fp64, optional
  Value weights{};       // as in SoftmaxXent
  double smoothing = 0;  // as in SoftmaxXent
  Value sample_weights{};

  bool one_hot() const { return !weights && !sample_weights && smoothing == 0; }

  static constexpr const char* kName = "softmax_xent_grad";
  Values reads() const { return {x, label, loss_scale, weights, sample_weights}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return SoftmaxXent::loss_attributes(scale, smoothing); }
  double flops() const { return (one_hot() ? 24.0 : 26.0) * double(x.shape.numel()); }
  double bytes() const {
    return size_of(x) + size_of(label) + size_of(weights) + size_of(sample_weights) + size_of(dx);
  }
};

// loss[tick] = scale * sum (x - target)^2.  An int32 target [n] stands for one-hot rows.
struct Mse {
  Value x;        // [n, out]
  Value target;   // [n, out] float, or [n] int32
  Value tick;     // [1] int32
  Value loss;     // [repeats] fp64
  Value correct;  // [repeats] int32, optional, with int32 targets only: as in SoftmaxXent
  double scale = 1;

  static constexpr const char* kName = "mse";
  Values reads() const { return {x, target, tick}; }
  Values writes() const { return {loss, correct}; }
  std::string attributes() const { return fmt::format("scale={}", scale); }
  double flops() const { return 3.0 * double(x.shape.numel()); }
  double bytes() const { return size_of(x) + size_of(target) + 12; }
};

// dx = 2 * scale * (x - target)
struct MseGrad {
  Value x, target, dx;
  double scale = 1;
  Value loss_scale{};  // [1] fp64, optional

  static constexpr const char* kName = "mse_grad";
  Values reads() const { return {x, target, loss_scale}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return fmt::format("scale={}", scale); }
  double flops() const { return 2.0 * double(x.shape.numel()); }
  double bytes() const { return size_of(x) + size_of(target) + size_of(dx); }
};

// Losses of single elements, with d = x - target:
//   mae              |d|
//   huber            d^2 / 2 where |d| <= delta, delta * (|d| - delta / 2) elsewhere
//   bce_with_logits  (1 - target) * x + (1 + (w - 1) * target) * log(1 + e^-x), w the weight of a
//                    positive target (1 without weights)
//   quantile         max(-w * d, (1 - w) * d), w the quantile; the pinball loss
enum class LossFn { mae, huber, bce_with_logits, quantile };

const char* name(LossFn fn);

// Rough cost of one element and its gradient, for the roofline.
constexpr double flops_per_element(LossFn fn) { return fn == LossFn::bce_with_logits ? 30.0 : 5.0; }

// loss[tick] = scale * sum of the elements' losses. Column c of x is compared with column
// c / (out / columns) of the target: neighbours in x share a target when it has fewer columns, as
// several quantiles of one number do. Column c has the weight weights[c % k]. An int32 target [n]
// stands for one-hot rows of `out` columns.
struct ElementwiseLoss {
  LossFn fn = LossFn::mae;
  Value x;        // [n, out]
  Value target;   // [n, columns] float, out a multiple of columns; or [n] int32
  Value weights;  // [k] fp64: the quantiles, or optional weights of positive targets
  Value tick;     // [1] int32
  Value loss;     // [repeats] fp64
  Value correct;  // [repeats] int32, optional, with int32 targets only: as in SoftmaxXent
  double scale = 1;
  double delta = 1;        // of huber
  Value sample_weights{};  // [m] of x's type, optional

  static constexpr const char* kName = "elementwise_loss";
  Values reads() const { return {x, target, weights, tick, sample_weights}; }
  Values writes() const { return {loss, correct}; }
  std::string attributes() const { return loss_attributes(fn, scale, delta); }
  static std::string loss_attributes(LossFn fn, double scale, double delta) {
    return fn == LossFn::huber ? fmt::format("{},scale={},delta={}", name(fn), scale, delta)
                               : fmt::format("{},scale={}", name(fn), scale);
  }
  double flops() const { return flops_per_element(fn) * double(x.shape.numel()); }
  double bytes() const {
    return size_of(x) + size_of(target) + size_of(weights) + size_of(sample_weights) + 12;
  }
};

// dx = scale * the derivative of the element's loss by x, times loss_scale[0] where there is one.
// The derivative of mae and quantile at d = 0 is 0.
struct ElementwiseLossGrad {
  LossFn fn = LossFn::mae;
  Value x, target, weights, dx;
  double scale = 1;
  double delta = 1;
  Value loss_scale{};  // [1] fp64, optional
  Value sample_weights{};

  static constexpr const char* kName = "elementwise_loss_grad";
  Values reads() const { return {x, target, weights, loss_scale, sample_weights}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return ElementwiseLoss::loss_attributes(fn, scale, delta); }
  double flops() const { return flops_per_element(fn) * double(x.shape.numel()); }
  double bytes() const {
    return size_of(x) + size_of(target) + size_of(weights) + size_of(sample_weights) + size_of(dx);
  }
};

// y[r] = softmax(x[r]): the probabilities that inference returns
struct Softmax {
  Value x, y;  // [n, classes]

  static constexpr const char* kName = "softmax";
  Values reads() const { return {x}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return {}; }
  double flops() const { return 22.0 * double(x.shape.numel()); }
  double bytes() const { return size_of(x) + size_of(y); }
};

// y[i] = the index of the first largest x[i, :]
struct Argmax {
  Value x;  // [n, classes]
  Value y;  // [n] int32

  static constexpr const char* kName = "argmax";
  Values reads() const { return {x}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return {}; }
  double flops() const { return double(x.shape.numel() - x.shape[0]); }  // comparisons
  double bytes() const { return size_of(x) + size_of(y); }
};

}  // namespace ridgeline
