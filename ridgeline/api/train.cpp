#include "ridgeline/engine/train/train.h"

#include "ridgeline/api/array.h"
#include "ridgeline/api/config.h"
#include "ridgeline/api/model.h"
#include "ridgeline/api/results.h"
#include "ridgeline/api/train_arrays.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/train/observer.h"
#include "ridgeline/engine/train/trainer.h"
#include "ridgeline/engine/user_data.h"
#include "ridgeline/nn/custom.h"

namespace ridgeline {
namespace {

using api::if_number;

// Passes on a run's progress, and takes its model when it has ended.
class Watch final : public engine::TrainObserver {
 public:
  Watch(const TrainOptions& options, std::optional<Model>& model)
      : options_(options), model_(model) {}

  void started(const engine::TrainReport&, engine::Trainer& trainer) override {
    trainer_ = &trainer;
    epoch_.model = [this] { return current_model(); };
    steps_ = trainer.total_steps();
    if (options_.learning_rate) trainer.change_rates(options_.learning_rate);
    per_epoch_ = trainer.steps_per_epoch();
    eval_every_ = trainer.config().train.eval_every;
    evaluates_ = trainer.has_validation() || trainer.has_test();
    epoch_.step = trainer.step();
  }

  void logged(const engine::TrainPoint& point) override {
    const auto made = double(point.step - epoch_.step);
    loss_ += point.loss * made;
    accuracy_ += point.accuracy * made;
    made_ += made;
    epoch_.step = point.step;
    epoch_.learning_rate = point.lr;
    epoch_.seconds = point.seconds;
    if (options_.progress) {
      Progress now;
      now.step = point.step;
      now.steps = steps_;
      now.epoch = point.epoch;
      now.loss = point.loss;
      now.accuracy = if_number(point.accuracy);
      now.samples_per_second = point.inputs_per_second;
      now.limit = point.limit_fraction;
      now.learning_rate = point.lr;
      now.model = epoch_.model;
      stopped_ = stopped_ || !options_.progress(now);
    }
    if (point.step % per_epoch_ != 0) return;
    epoch_.number = point.step / per_epoch_;
    // An evaluation follows, which ends the epoch.
    const bool evaluated =
        evaluates_ && (epoch_.number % eval_every_ == 0 || point.step == steps_ || stopped_);
    if (!evaluated) end_epoch();
  }

  void evaluated(const engine::EvalPoint& point, engine::Trainer&) override {
    if (made_ == 0 || point.step % per_epoch_ != 0) return;
    engine::Evaluation result;
    result.loss = point.loss;
    result.accuracy = point.accuracy;
    epoch_.evaluation = api::scores_of(result);
    for (const auto& [metric, value] : point.metrics) set(*epoch_.evaluation, metric, value);
    end_epoch();
  }

  bool wants_to_stop() override {
    if (options_.keep_going && !stopped_) stopped_ = !options_.keep_going();
    return stopped_;
  }

  void finished(const engine::TrainReport&, engine::Trainer&) override { model_ = current_model(); }

 private:
  Model current_model() {
    const data::DataSet& set = trainer_->set();
    engine::LoadedModel loaded{.config = trainer_->config(),
                               .model = engine::copy_of(trainer_->model(), trainer_->config()),
                               .scaling = trainer_->scaling(),
                               .classes = set.train.classes,
                               .symbols = set.train.symbols,
                               .warnings = {}};
    if (set.preparation) loaded.preparation = *set.preparation;
    loaded.config.run.quiet = true;
    return ModelAccess::make(std::move(loaded));
  }

  static void set(Evaluation& scores, engine::Metric metric, double value) {
    using engine::Metric;
    const std::pair<Metric, std::optional<double>*> places[] = {
        {Metric::top5, &scores.top5}, {Metric::f1, &scores.f1},   {Metric::auc, &scores.auc},
        {Metric::mse, &scores.mse},   {Metric::mae, &scores.mae}, {Metric::r2, &scores.r2}};
    for (const auto& [each, place] : places) {
      if (each == metric) *place = if_number(value);
    }
  }

  void end_epoch() {
    epoch_.loss = loss_ / made_;
    epoch_.accuracy = if_number(accuracy_ / made_);
    if (options_.epoch_ended && !options_.epoch_ended(epoch_)) stopped_ = true;
    epoch_.evaluation.reset();
    loss_ = accuracy_ = made_ = 0;
  }

  const TrainOptions& options_;
  std::optional<Model>& model_;
  engine::Trainer* trainer_ = nullptr;
  int64_t steps_ = 0, per_epoch_ = 1, eval_every_ = 1;
  bool evaluates_ = false, stopped_ = false;
  Epoch epoch_;                                // of the steps since the last one ended
  double loss_ = 0, accuracy_ = 0, made_ = 0;  // sums over them, and their count
};

TrainResult run(const engine::Config& config, const TrainOptions& options,
                std::shared_ptr<const data::DataSet> set) {
  std::optional<Model> model;
  engine::TrainOptions run;
  run.out = options.out;
  run.progress = engine::Progress::Style::none;
  run.set = std::move(set);
  run.signals = options.signals;
  run.any_ceilings = true;
  if (options.start) run.initial = &ModelAccess::state(*options.start).loaded.model;
  run.observer = std::make_shared<Watch>(options, model);
  const engine::TrainReport report = engine::train(config, run);
  return api::result_of(report, std::move(*model));
}

// A model that is trained further keeps its preparation.
const data::Preparation* known_preparation(const Model& start) {
  const auto& known = ModelAccess::state(start).loaded.preparation;
  if (!known || known->windows() || known->features().size() != 1 ||
      data::field_of(known->features().front()) != "inputs" ||
      known->target()->fields != std::vector<std::string>{"targets"}) {
    throw_error(ErrorKind::usage,
                "train: the model to go on from was not trained on arrays; train a new one, or use "
                "`ridgeline train --init`");
  }
  return &*known;
}

}  // namespace

TrainResult train(const Config& config, const TrainOptions& options) {
  if (options.test || options.validation) {
    throw_error(ErrorKind::usage, "train: the config names the data to test on; leave out `{}`",
                options.test ? "test" : "validation");
  }
  return run(ConfigAccess::parse(config), options, nullptr);
}

TrainResult train(const Config& config, const Samples& samples, const TrainOptions& options) {
  const engine::Config parsed = api::parse_for_arrays(config, samples);
  if (samples.inputs.gpu >= 0) {
    api::check_place(samples.inputs, engine::choose_device(parsed.run.device), "train: x");
  }
  const data::Preparation* known = nullptr;
  if (options.start) known = known_preparation(*options.start);
  return run(parsed, options,
             api::prepare_arrays(parsed, samples, options.test, options.validation,
                                 options.hold_out, known));
}

void register_layer(const std::string& type, LayerMaker make) {
  nn::add_layer_type(type, std::move(make));
}

}  // namespace ridgeline
