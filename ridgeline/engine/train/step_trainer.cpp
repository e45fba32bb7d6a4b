#include "ridgeline/engine/train/step_trainer.h"

#include <numeric>

#include "ridgeline/data/inputs_in_place.h"
#include "ridgeline/engine/prepared_inputs.h"
#include "ridgeline/engine/resident_set.h"
#include "ridgeline/engine/train/fine_tune.h"

namespace ridgeline::engine {
namespace {

constexpr size_t kMostPlans = 16;  // plans kept, one per batch size

Config config_for(const LoadedModel& loaded, const RunConfig& run) {
  Config config = loaded.config;
  const RunConfig before = config.run;
  config.run = run;
  config.run.precision = before.precision;
  config.run.weights = before.weights;
  config.run.loss_scale = before.loss_scale;
  config.run.quiet = true;
  config.data.shift = 0;
  config.data.flip = false;
  return config;
}

// The type of prepared samples: codes for an embedding are integers.
DType input_type(const LoadedModel& loaded) {
  return loaded.preparation ? input_dtype(*loaded.preparation) : DType::fp32;
}
DType target_type(int classes) { return classes > 0 ? DType::int32 : DType::fp32; }

}  // namespace

StepTrainer::StepTrainer(const LoadedModel& loaded, const RunConfig& run)
    : config_(config_for(loaded, run)),
      classes_(loaded.classes),
      model_(copy_of(loaded.model, config_)),
      machine_(config_.run),
      weights_(machine_.runtime(), model_,
               nn::lower(model_, options_for({input_type(loaded), target_type(classes_), 2}))) {}

nn::LowerOptions StepTrainer::options_for(const Key& key) const {
  nn::LowerOptions options = lower_options(config_, {}, classes_);
  options.mode = nn::Mode::train;
  options.set_inputs = key.inputs;
  options.set_targets = key.targets;
  options.lengths = key.lengths;
  options.sample_weights = key.weights;
  options.batch = options.set_samples = options.order_samples = key.samples;
  options.frozen = frozen_layers(config_.train.freeze, model_);
  return options;
}

StepTrainer::Prepared& StepTrainer::prepare(const Key& key) {
  const auto found = prepared_.find(key);
  if (found != prepared_.end()) return found->second;
  if (prepared_.size() >= kMostPlans) prepared_.clear();
  nn::Lowered lowered = nn::lower(model_, options_for(key));
  Prepared made;
  Externals shared;
  weights_.bind(lowered, shared);
  const auto own = [&](const Value& value, DeviceBuffer& memory) {
    memory = DeviceBuffer(machine_.runtime(), size_t(size_of(value)));
    shared[value.id] = {memory.data(), value.dtype, value.shape, machine_.device()};
  };
  own(lowered.inputs, made.inputs);
  own(lowered.targets, made.targets);
  own(lowered.order, made.order);
  if (key.lengths) own(lowered.lengths, made.lengths);
  if (key.weights) own(lowered.sample_weights, made.weights);
  std::vector<int32_t> order(size_t(key.samples));
  std::iota(order.begin(), order.end(), 0);
  machine_.runtime().upload(made.order.data(), order.data(), made.order.size());
  made.runner = std::make_unique<Runner>(machine_, std::move(lowered), shared);
  return prepared_.emplace(key, std::move(made)).first->second;
}

StepResult StepTrainer::make(const data::SampleSet& batch, double rate) {
  check_outputs(model_, batch, batch.name, config_.train.loss);
  Prepared& made = prepare({batch.input_dtype(), batch.targets.view().dtype, batch.size(),
                            batch.has_lengths(), batch.has_weights()});
  const auto* lying = dynamic_cast<const data::InputsInPlace*>(batch.source.get());
  const void* inputs = lying != nullptr ? lying->all().data : batch.inputs.view().data;
  machine_.runtime().upload(made.inputs.data(), inputs, made.inputs.size());
  machine_.runtime().upload(made.targets.data(), batch.targets.view().data, made.targets.size());
  if (batch.has_lengths()) {
    machine_.runtime().upload(made.lengths.data(), batch.lengths.view().data, made.lengths.size());
  }
  if (batch.has_weights()) {
    machine_.runtime().upload(made.weights.data(), batch.weights.view().data, made.weights.size());
  }
  made.runner->launch(0, 1, step_, {&rate, 1});
  StepResult result;
  result.loss = made.runner->losses().front();
  if (const auto correct = made.runner->corrects(); !correct.empty()) {
    result.correct = correct.front();
  }
  ++step_;
  return result;
}

}  // namespace ridgeline::engine
