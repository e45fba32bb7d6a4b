#pragma once

#include <fmt/core.h>

#include "ridgeline/ops/value.h"

namespace ridgeline {

// Losses write one number a step, at loss[tick], so that many steps can run before the host reads.
// `scale` is 1 over the *global* batch (and, for Mse, over the outputs), so ranks' losses add up.

// loss[tick] = scale * sum_r (logsumexp(x[r]) - x[r, label[r]])
// correct[tick] = number of samples whose largest x is first reached at label[r]
struct SoftmaxXent {
  Value x;        // [n, classes]
  Value label;    // [n] int32
  Value tick;     // [1] int32
  Value loss;     // [repeats] fp64
  Value correct;  // [repeats] int32, optional
  double scale = 1;

  static constexpr const char* kName = "softmax_xent";
  Values reads() const { return {x, label, tick}; }
  Values writes() const { return {loss, correct}; }
  std::string attributes() const { return fmt::format("scale={}", scale); }
  double flops() const { return 22.0 * double(x.shape.numel()); }
  double bytes() const { return size_of(x) + size_of(label) + 12; }
};

// Gradients times loss_scale[0], where there is one, so that small ones survive in fp16; the
// updates take it out again (GlobalNorm, update.h).

// dx[r, c] = scale * (softmax(x[r])[c] - (c == label[r]))
struct SoftmaxXentGrad {
  Value x, label, dx;
  double scale = 1;
  Value loss_scale{};  // [1] fp64, optional

  static constexpr const char* kName = "softmax_xent_grad";
  Values reads() const { return {x, label, loss_scale}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return fmt::format("scale={}", scale); }
  double flops() const { return 24.0 * double(x.shape.numel()); }
  double bytes() const { return size_of(x) + size_of(label) + size_of(dx); }
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

// y[i] = the first place of the largest x[i, :]
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
