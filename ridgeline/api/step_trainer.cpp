#include "ridgeline/engine/train/step_trainer.h"

#include <mutex>

#include "ridgeline/api/model.h"
#include "ridgeline/api/train_arrays.h"

namespace ridgeline {

struct StepTrainer::State {
  std::mutex mutex;  // calls from several threads follow one another
  engine::StepTrainer trainer;
  data::Preparation preparation;

  State(const engine::LoadedModel& loaded, const engine::RunConfig& run)
      : trainer(loaded, run), preparation(*loaded.preparation) {}
};

StepTrainer::StepTrainer(const Model& model, const DeviceOptions& options) {
  Model::State& from = ModelAccess::state(model);
  const std::scoped_lock lock(from.mutex);
  if (!from.loaded.preparation || from.loaded.preparation->windows()) {
    throw_error(ErrorKind::usage, "train_step: the model was trained on {}, not on arrays",
                from.loaded.config.data.name);
  }
  state_ = std::make_unique<State>(from.loaded, api::model_options(options).run);
}

StepTrainer::StepTrainer(StepTrainer&&) noexcept = default;
StepTrainer& StepTrainer::operator=(StepTrainer&&) noexcept = default;
StepTrainer::~StepTrainer() = default;

StepResult StepTrainer::step(const Samples& batch, std::optional<double> rate) {
  const std::scoped_lock lock(state_->mutex);
  engine::StepTrainer& trainer = state_->trainer;
  api::check_place(batch.inputs, trainer.machine().device(), "train_step: x");
  const data::SampleSet set = api::prepare_batch(batch, state_->preparation, "train_step");
  const engine::StepResult made =
      trainer.make(set, rate.value_or(trainer.config().train.optimizer.lr));
  StepResult result{made.loss};
  if (!set.has_values()) result.accuracy = double(made.correct) / double(set.size());
  return result;
}

int64_t StepTrainer::steps() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->trainer.step();
}

void StepTrainer::give_weights(Model& model) const {
  Model::State& to = ModelAccess::state(model);
  const std::scoped_lock lock(to.mutex, state_->mutex);
  state_->trainer.download_to(to.loaded.model);
  to.forget_plans();
}

GpuQueue StepTrainer::queue() { return QueueAccess::make(state_->trainer.machine().runtime()); }

}  // namespace ridgeline
