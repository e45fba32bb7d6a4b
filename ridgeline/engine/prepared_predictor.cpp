#include "ridgeline/engine/prepared_predictor.h"

#include <algorithm>
#include <cstring>

#include "ridgeline/engine/one_step_model.h"

namespace ridgeline::engine {
namespace {

constexpr int64_t kMostSamples = int64_t{1} << 20;  // of a call: more is a slip of the pen

RunConfig run_of(const LoadedModel& loaded, const PrepareOptions& options) {
  RunConfig run = loaded.config.run;
  run.device = options.device;
  run.threads = options.threads;
  run.tune = options.tune;
  run.quiet = true;
  // With one thread nothing may allocate or lock after the preparation, which a vendor's library
  // does not promise.
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
    predictor_ = std::make_unique<Predictor>(machine_, loaded.config, model, loaded.scaling,
                                             loaded.classes, predictor);
  };
  options.timesteps ? make(one_step_model(loaded)) : make(loaded.model);
  Runner& runner = predictor_->runner();
  for (const Tensor& state : runner.carried()) state_bytes_ += state.bytes();

  const Value& output = predictor_->output_value();
  outputs_ = output.shape.numel() / batch_;
  output_type_ = output.dtype;
  const Tensor outputs = runner.plan().peek(output.id);
  on_host_ = machine_.device().kind == DeviceKind::cpu;
  if (on_host_) {
    input_memory_ = predictor_->input_memory().data();
    output_memory_ = static_cast<const std::byte*>(outputs.data);
  } else {
    input_staging_ = Buffer(predictor_->input_memory().size());
    output_staging_ = Buffer(outputs.bytes());
    input_memory_ = input_staging_.data();
    output_memory_ = output_staging_.data();
  }
  const auto& preparation = loaded.preparation;
  if (preparation && preparation->target() && options.answer == Answer::outputs &&
      preparation->target()->kind == data::TargetKind::values) {
    const data::Target& target = *preparation->target();
    const int64_t each = std::max<int64_t>(1, outputs_ / target.outputs());  // quantiles of a value
    for (int64_t i = 0; i < outputs_; ++i) {
      const auto at = size_t(i / each % target.outputs());
      unscale_.push_back(float(1 / target.scale[at]));
      unshift_.push_back(float(target.shift[at]));
    }
  }
}

void PreparedPredictor::run(const void* samples, int64_t count, float* outputs) {
  if (count < 0 || count > batch_ || (timesteps_ && count != batch_)) {
    throw_error(ErrorKind::usage, "{} samples were given, and the predictor was prepared for {}{}",
                count, batch_, timesteps_ ? " streams, each of which brings a timestep" : "");
  }
  inputs_.apply(samples, count, input_memory_);
  Runtime& runtime = machine_.runtime();
  if (!on_host_) {
    const size_t each = predictor_->input_memory().size() / size_t(batch_);
    runtime.upload(predictor_->input_memory().data(), input_memory_, each * size_t(count));
  }
  predictor_->runner().launch(0, 1);
  if (!on_host_) {
    const Tensor from = predictor_->runner().plan().peek(predictor_->output_value().id);
    runtime.download(output_staging_.data(), from.data, output_staging_.size());
  }
  give_outputs(count, outputs);
}

void PreparedPredictor::give_outputs(int64_t count, float* outputs) {
  const int64_t all = count * outputs_;
  dispatch_float(output_type_, [&]<typename T>(T) {
    const T* from = reinterpret_cast<const T*>(output_memory_);
    for (int64_t i = 0; i < all; ++i) outputs[i] = float(from[i]);
  });
  if (unscale_.empty()) return;
  for (int64_t i = 0; i < count; ++i, outputs += outputs_) {
    for (int64_t j = 0; j < outputs_; ++j) {
      outputs[j] = outputs[j] * unscale_[size_t(j)] + unshift_[size_t(j)];
    }
  }
}

void PreparedPredictor::save_state(void* bytes) const {
  auto* to = static_cast<std::byte*>(bytes);
  for (const Tensor& state : predictor_->runner().carried()) {
    predictor_->runner().plan().runtime().download(to, state.data, state.bytes());
    to += state.bytes();
  }
}

void PreparedPredictor::restore_state(const void* bytes) {
  const auto* from = static_cast<const std::byte*>(bytes);
  for (const Tensor& state : predictor_->runner().carried()) {
    machine_.runtime().upload(state.data, from, state.bytes());
    from += state.bytes();
  }
}

void PreparedPredictor::reset_state() { predictor_->runner().clear_carried(); }

}  // namespace ridgeline::engine
