#include "ridgeline/engine/evaluate.h"

#include "ridgeline/api/model.h"
#include "ridgeline/api/results.h"
#include "ridgeline/api/train_arrays.h"
#include "ridgeline/engine/user_data.h"

namespace ridgeline {
namespace api {

Evaluation scores_of(const engine::Evaluation& result) {
  Evaluation scores;
  scores.loss = result.loss;
  scores.accuracy = if_number(result.accuracy);
  scores.top5 = if_number(result.scores.top5);
  scores.f1 = if_number(result.scores.f1);
  scores.auc = if_number(result.scores.auc);
  scores.mse = if_number(result.scores.mse);
  scores.mae = if_number(result.scores.mae);
  scores.r2 = if_number(result.scores.r2);
  scores.samples = result.samples;
  return scores;
}

}  // namespace api

Evaluation Model::evaluate(const Samples& samples, const std::function<void()>& between_batches) {
  const std::scoped_lock lock(state_->mutex);
  const engine::LoadedModel& loaded = state_->loaded;
  if (!loaded.preparation || loaded.preparation->windows()) {
    throw_error(ErrorKind::usage,
                "evaluate: the model was trained on {}, not on arrays; `ridgeline eval` tests it",
                loaded.config.data.name);
  }
  engine::Machine& machine = state_->device();
  api::check_place(samples.inputs, machine.device(), "evaluate: x");
  const data::SampleSet set = api::prepare_batch(samples, *loaded.preparation, "evaluate");
  engine::check_outputs(loaded.model, set, set.name, loaded.config.train.loss);
  nn::LowerOptions lower = engine::lower_options(loaded.config, loaded.scaling, set);
  lower.mode = nn::Mode::evaluate;
  const engine::Weights weights(machine.runtime(), loaded.model, nn::lower(loaded.model, lower));
  engine::Evaluator evaluator(machine, loaded.config, loaded.model, set, loaded.scaling, {}, {},
                              /*stays=*/true);
  evaluator.set_between_batches(between_batches);
  evaluator.set_units(engine::target_units(&*loaded.preparation, set));
  return api::scores_of(evaluator.run(weights));
}

}  // namespace ridgeline
