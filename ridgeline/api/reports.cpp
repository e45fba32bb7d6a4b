#include "ridgeline/api/config.h"
#include "ridgeline/api/model.h"
#include "ridgeline/api/train_arrays.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/plan/explain.h"
#include "ridgeline/engine/profile/profile.h"
#include "ridgeline/engine/report/page.h"
#include "ridgeline/engine/user_data.h"

namespace ridgeline {
namespace {

struct Subject {
  engine::Config config;
  std::shared_ptr<const data::DataSet> set;
};

Subject subject_of(const Config& config, const std::optional<Samples>& samples) {
  Subject subject;
  if (samples) {
    subject.config = api::parse_for_arrays(config, *samples);
    // A net that begins with an embedding takes integers as codes, as Model::create() says.
    std::optional<Model> model;
    const nn::Graph& layers = subject.config.layers;
    if (!layers.empty() && layers[0]->codes_below() > 0 && samples->inputs.shape.size() > 1) {
      const std::vector<int64_t>& shape = samples->inputs.shape;
      model = Model::create(config, {shape.begin() + 1, shape.end()});
    }
    const data::Preparation* known =
        model ? &*ModelAccess::state(*model).loaded.preparation : nullptr;
    subject.set =
        api::prepare_arrays(subject.config, *samples, std::nullopt, std::nullopt, false, known);
  } else {
    subject.config = ConfigAccess::parse(config);
    subject.set = std::make_shared<data::DataSet>(engine::load_data(subject.config, {}));
  }
  subject.config.run.quiet = true;
  return subject;
}

}  // namespace

StepReport plan(const Config& config, const std::optional<Samples>& samples) {
  const Subject subject = subject_of(config, samples);
  engine::PlanReport report = engine::explain_plan(subject.config, subject.set, false);
  return {.text = std::move(report.text), .json = std::move(report.json)};
}

StepReport profile(const Config& config, const std::optional<Samples>& samples, double seconds) {
  const Subject subject = subject_of(config, samples);
  engine::ProfileOptions options;
  options.seconds = seconds;
  options.set = subject.set;
  const engine::Profile profile = engine::profile_training(
      subject.config, samples ? "arrays in memory" : subject.config.data.name, options);
  StepReport report{.text = engine::to_text(profile), .json = engine::to_json_text(profile)};
  if (profile.ceilings) report.roofline = prof::to_svg(engine::roofline_of(profile));
  return report;
}

}  // namespace ridgeline
