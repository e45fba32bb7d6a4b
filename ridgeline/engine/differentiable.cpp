#include "ridgeline/engine/differentiable.h"

#include <cstring>

#include "ridgeline/engine/resident_set.h"

namespace ridgeline::engine {
namespace {

constexpr size_t kMostPasses = 64;  // plans that are kept: 16 batch sizes, forward and backward

Config config_for(const LoadedModel& loaded, const RunConfig& run) {
  Config config = loaded.config;
  config.run = run;
  config.run.precision = loaded.config.run.precision;
  config.run.quiet = true;
  return config;
}

nn::LowerOptions options_of(const Config& config, int64_t batch) {
  nn::LowerOptions options = lower_options(config, {}, 0);
  options.batch = batch;
  return options;
}

}  // namespace

Differentiable::Differentiable(const LoadedModel& loaded, const RunConfig& run)
    : config_(config_for(loaded, run)),
      model_(copy_of(loaded.model, config_)),
      machine_(config_.run),
      weights_(machine_.runtime(), model_,
               nn::lower_pass(model_, options_of(config_, 2), {}).lowered) {
  const nn::LoweredPass lowered = nn::lower_pass(model_, options_of(config_, 2), {});
  Externals bound;
  weights_.bind(lowered.lowered, bound);
  for (const Value& value : lowered.lowered.params) params_.push_back(bound.at(value.id));
}

Differentiable::Pass& Differentiable::pass(const Key& key) {
  const auto found = passes_.find(key);
  if (found != passes_.end()) return found->second;
  if (passes_.size() >= kMostPasses) {
    machine_.runtime().synchronize();
    passes_.clear();
  }
  Pass made;
  made.lowered = nn::lower_pass(model_, options_of(config_, key.n), {key.kind, key.training});
  Externals bound;
  weights_.bind(made.lowered.lowered, bound);
  const auto own = [&](const Value& value, DeviceBuffer& memory) {
    if (!value) return;
    memory = DeviceBuffer(machine_.runtime(), size_t(size_of(value)));
    bound[value.id] = {memory.data(), value.dtype, value.shape, machine_.device()};
  };
  own(made.lowered.x, made.x);
  own(made.lowered.dy, made.dy);
  // The forward pass has already updated the running statistics, so the second pass updates memory
  // that nothing reads.
  for (size_t i = 0; key.kind == nn::PassKind::gradients && i < params_.size(); ++i) {
    if (!model_.params()[i].trained()) bound.erase(made.lowered.lowered.params[i].id);
  }
  made.runner = std::make_unique<Runner>(machine_, made.lowered.lowered, bound);
  return passes_.emplace(key, std::move(made)).first->second;
}

void Differentiable::copy_out(Pass& pass, const Value& value, void* to) {
  const Tensor from = pass.runner->plan().peek(value.id);
  machine_.runtime().upload(to, from.data, from.bytes());
}

void Differentiable::forward(const void* x, int64_t n, void* y, int64_t step, bool training) {
  Pass& made = pass({nn::PassKind::forward, training, n});
  machine_.runtime().upload(made.x.data(), x, made.x.size());
  made.runner->launch(0, 1, step);
  copy_out(made, made.lowered.y, y);
}

void Differentiable::backward(const void* x, const void* dy, int64_t n, void* dx,
                              std::span<void* const> grads, int64_t step, bool training) {
  Pass& made = pass({nn::PassKind::gradients, training, n});
  machine_.runtime().upload(made.x.data(), x, made.x.size());
  machine_.runtime().upload(made.dy.data(), dy, made.dy.size());
  made.runner->launch(0, 1, step);
  if (dx != nullptr) copy_out(made, made.lowered.dx, dx);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i] != nullptr && made.lowered.grads[i])
      copy_out(made, made.lowered.grads[i], grads[i]);
  }
}

}  // namespace ridgeline::engine
