#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/engine/runner.h"
#include "ridgeline/engine/weights.h"
#include "ridgeline/nn/lower_pass.h"

namespace ridgeline::engine {

// A model as a function with gradients, for callers with a loss and an optimizer of their own.
// This object owns the weights, which the caller may change between calls. All numbers are of
// type(). On a GPU, calls return before the device is done, and the caller's memory must be on
// that GPU.
class Differentiable {
 public:
  // The initial weights are those of `loaded`. Throws Error(usage) like nn::lower_pass.
  Differentiable(const LoadedModel& loaded, const RunConfig& run);

  Machine& machine() { return machine_; }
  DType type() const { return storage(config_.run.precision); }
  const Shape& input() const { return model_.input(); }
  const Shape& output() const { return model_.output(); }
  // The weights on the device, in the order of nn::Model::params().
  const std::vector<Tensor>& params() const { return params_; }
  const std::vector<nn::Param>& specs() const { return model_.params(); }

  // y[n, outputs] = f(x[n, inputs]). `step` selects the dropout mask.
  void forward(const void* x, int64_t n, void* y, int64_t step, bool training);
  // Computes gradients of the pass with the same x, step and `training`: dx[n, inputs], unless
  // null, and those of params(), null for those not wanted. Running statistics do not change.
  void backward(const void* x, const void* dy, int64_t n, void* dx, std::span<void* const> grads,
                int64_t step, bool training);

 private:
  struct Pass {
    nn::LoweredPass lowered;
    DeviceBuffer x, dy;
    std::unique_ptr<Runner> runner;
  };
  struct Key {
    nn::PassKind kind;
    bool training;
    int64_t n;
    auto operator<=>(const Key&) const = default;
  };
  Pass& pass(const Key& key);
  void copy_out(Pass& pass, const Value& value, void* to);

  Config config_;
  nn::Model model_;
  Machine machine_;
  Weights weights_;
  std::vector<Tensor> params_;
  std::map<Key, Pass> passes_;  // a plan for each batch size so far
};

}  // namespace ridgeline::engine
