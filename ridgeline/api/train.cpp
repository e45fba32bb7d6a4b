#include "ridgeline/engine/train/train.h"

#include <cmath>
#include <cstring>

#include "ridgeline/api/array.h"
#include "ridgeline/api/config.h"
#include "ridgeline/api/model.h"
#include "ridgeline/engine/own_data.h"
#include "ridgeline/engine/train/observer.h"
#include "ridgeline/engine/train/trainer.h"
#include "ridgeline/nn/custom.h"

namespace ridgeline {
namespace {

std::optional<double> if_number(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

nn::Model copy_of(const nn::Model& model, const engine::Config& config) {
  nn::Model copy = config.build_model(model.input());
  for (size_t i = 0; i < model.params().size(); ++i) {
    const Tensor& from = model.params()[i].value.view();
    std::memcpy(copy.params()[i].value.view().data, from.data, from.bytes());
  }
  return copy;
}

// Passes a run's progress on, and takes its model when it has ended.
class Watch final : public engine::TrainObserver {
 public:
  Watch(const std::function<bool(const Progress&)>& progress, std::optional<Model>& model)
      : progress_(progress), model_(model) {}

  void started(const engine::TrainReport&, engine::Trainer& trainer) override {
    steps_ = trainer.total_steps();
  }
  void logged(const engine::TrainPoint& point) override {
    if (!progress_) return;
    Progress now;
    now.step = point.step;
    now.steps = steps_;
    now.epoch = point.epoch;
    now.loss = point.loss;
    now.accuracy = if_number(point.accuracy);
    now.samples_per_second = point.inputs_per_second;
    now.limit = point.limit_fraction;
    stopped_ = stopped_ || !progress_(now);
  }
  bool wants_to_stop() const override { return stopped_; }
  void finished(const engine::TrainReport&, engine::Trainer& trainer) override {
    const data::DataSet& set = trainer.set();
    engine::LoadedModel loaded{.config = trainer.config(),
                               .model = copy_of(trainer.model(), trainer.config()),
                               .scaling = trainer.scaling(),
                               .classes = set.train.classes,
                               .symbols = set.train.symbols,
                               .warnings = {}};
    if (set.preparation) loaded.preparation = *set.preparation;
    loaded.config.run.quiet = true;
    model_ = ModelAccess::make(std::move(loaded));
  }

 private:
  const std::function<bool(const Progress&)>& progress_;
  std::optional<Model>& model_;
  int64_t steps_ = 0;
  bool stopped_ = false;
};

TrainResult run(const engine::Config& config, const TrainOptions& options,
                std::shared_ptr<const data::DataSet> set) {
  std::optional<Model> model;
  engine::TrainOptions run;
  run.out = options.out;
  run.progress = engine::Progress::Style::none;
  run.set = std::move(set);
  run.observer = std::make_shared<Watch>(options.progress, model);
  const engine::TrainReport report = engine::train(config, run);
  TrainResult result{.model = std::move(*model)};
  result.steps = report.steps;
  result.train_loss = report.train_loss;
  result.train_accuracy = if_number(report.train_accuracy);
  result.test_loss = report.test.loss;
  result.test_accuracy = if_number(report.test.accuracy);
  result.seconds = report.train_seconds;
  result.samples_per_second = report.inputs_per_second;
  if (report.limit) result.limit = report.limit_fraction;
  return result;
}

data::FieldSet fields_of(const Samples& samples, const char* what) {
  Tensor inputs = api::tensor_of(samples.inputs, what),
         targets = api::tensor_of(samples.targets, what);
  // [samples, 1] is one number a sample as well.
  if (targets.shape.rank() == 2 && targets.shape[1] == 1) targets.shape = {targets.shape[0]};
  data::FieldSet set(what);
  set.add(data::borrowed_field("inputs", inputs));
  set.add(data::borrowed_field("targets", targets));
  return set;
}

}  // namespace

TrainResult train(const Config& config, const TrainOptions& options) {
  if (options.test) {
    throw_error(ErrorKind::usage, "train: the config names the data to test on; leave out `test`");
  }
  return run(ConfigAccess::parse(config), options, nullptr);
}

TrainResult train(const Config& config, const Samples& samples, const TrainOptions& options) {
  std::vector<std::string> more{"data.train=\"arrays in memory\"", "data.target=\"targets\""};
  if (!ConfigAccess::names(config, "data.target_kind")) {
    const bool classes = samples.targets.type == ArrayType::int32 ||
                         samples.targets.type == ArrayType::int64 ||
                         samples.targets.type == ArrayType::uint8;
    more.push_back(classes ? "data.target_kind=\"classes\"" : "data.target_kind=\"values\"");
  }
  const engine::Config parsed = ConfigAccess::parse(config, more);
  std::optional<data::FieldSet> test;
  if (options.test) test = fields_of(*options.test, "the test arrays");
  auto set = std::make_shared<data::DataSet>(engine::prepare_own_data(
      parsed, fields_of(samples, "the training arrays"), {"targets"}, std::move(test)));
  return run(parsed, options, std::move(set));
}

void register_layer(const std::string& type, LayerMaker make) {
  nn::add_layer_type(type, std::move(make));
}

}  // namespace ridgeline
