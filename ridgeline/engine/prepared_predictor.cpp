#include "ridgeline/engine/prepared_predictor.h"

#include <algorithm>

#include "ridgeline/engine/one_step_model.h"

namespace ridgeline::engine {
namespace {

constexpr int64_t kMostSamples = int64_t{1} << 20;  // per call: more is a typing error

RunConfig run_of(const LoadedModel& loaded, const PrepareOptions& options) {
  RunConfig run = loaded.config.run;
  run.device = options.device;
  run.threads = options.threads;
  run.tune = options.tune;
  run.quiet = true;
  // With one thread nothing may allocate or lock after the preparation, which a vendor's library
  // does not guarantee.
  if (options.threads == 1) run.kernels.push_back("!cpu.*onednn*");
  return run;
}

int64_t checked_batch(int64_t batch) {
  if (batch >= 1 && batch <= kMostSamples) return batch;
  throw_error(ErrorKind::usage, "a batch of {}: give a count from 1 to {}", batch, kMostSamples);
}

}  // namespace

PreparedPredictor::PreparedPredictor(const LoadedModel& loaded, const PrepareOptions& options)
    : batch_(checked_batch(options.batch)),
      timesteps_(options.timesteps),
      inputs_(loaded, options.inputs, options.timesteps),
      machine_(run_of(loaded, options)) {
  PredictorOptions predictor;
  predictor.batch = batch_;
  predictor.answer = options.answer;
  predictor.inputs = inputs_.inputs();
  predictor.carry_state = options.timesteps;
  const auto make = [&](const nn::Model& model) {
    predictor_ =
        std::make_unique<BoundPredictor>(machine_, loaded, model, predictor, options.one_sample);
  };
  options.timesteps ? make(one_step_model(loaded)) : make(loaded.model);
  const auto& preparation = loaded.preparation;
  if (preparation && preparation->target() && options.answer == Answer::outputs &&
      preparation->target()->kind == data::TargetKind::values) {
    const data::Target& target = *preparation->target();
    const int64_t each =
        std::max<int64_t>(1, outputs() / target.outputs());  // quantiles of a value
    const bool same = std::ranges::all_of(target.scale, [](double scale) { return scale == 1; }) &&
                      std::ranges::all_of(target.shift, [](double shift) { return shift == 0; });
    if (same) return;
    for (int64_t i = 0; i < outputs(); ++i) {
      const auto at = size_t(i / each % target.outputs());
      unscale_.push_back(float(1 / target.scale[at]));
      unshift_.push_back(float(target.shift[at]));
    }
  }
}

void PreparedPredictor::check_count(int64_t count) const {
  if (count >= 0 && count <= batch_ && (!timesteps_ || count == batch_)) return;
  throw_error(ErrorKind::usage, "{} samples were given, and the predictor was prepared for {}{}",
              count, batch_, timesteps_ ? " streams, each of which brings a timestep" : "");
}

void PreparedPredictor::run_on_gpu(const void* samples, int64_t count, float* outputs) {
  check_count(count);
  const bool on_host = machine_.device().is_host();
  if (on_host || !predictor_->takes_device_memory() || !inputs_.is_identity() ||
      !unscale_.empty()) {
    throw_error(ErrorKind::usage,
                "x: got an array on a GPU, expected one on the host: this model {}",
                on_host ? "computes there"
                        : "prepares samples or answers there (scale = \"raw\" has nothing done, a "
                          "batch of two or more stays on the GPU)");
  }
  predictor_->run_on_device(samples, count, outputs);
}

void PreparedPredictor::run(const void* samples, int64_t count, float* outputs) {
  check_count(count);
  inputs_.apply(samples, count, predictor_->inputs(), machine_.runtime().thread_pool());
  predictor_->run();
  predictor_->outputs(count, outputs);
  if (unscale_.empty()) return;
  const int64_t width = this->outputs();
  for (int64_t i = 0; i < count; ++i, outputs += width) {
    for (int64_t j = 0; j < width; ++j) {
      outputs[j] = outputs[j] * unscale_[size_t(j)] + unshift_[size_t(j)];
    }
  }
}

}  // namespace ridgeline::engine
