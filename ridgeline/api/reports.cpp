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

struct ConfigAndData {
  engine::Config config;
  std::shared_ptr<const data::DataSet> set;
};

ConfigAndData config_and_data(const Config& config, const std::optional<Samples>& samples) {
  ConfigAndData found;
  if (samples) {
    found.config = api::parse_for_arrays(config, *samples);
    // A net that begins with an embedding takes integers as codes, as Model::create() says.
    std::optional<Model> model;
    const nn::Graph& layers = found.config.layers;
    if (!layers.empty() && layers[0]->codes_below() > 0 && samples->inputs.shape.size() > 1) {
      const std::vector<int64_t>& shape = samples->inputs.shape;
      model = Model::create(config, {shape.begin() + 1, shape.end()});
    }
    const data::Preparation* known =
        model ? &*ModelAccess::state(*model).loaded.preparation : nullptr;
    found.set =
        api::prepare_arrays(found.config, *samples, std::nullopt, std::nullopt, false, known);
  } else {
    found.config = ConfigAccess::parse(config);
    found.set = std::make_shared<data::DataSet>(engine::load_data(found.config, {}));
  }
  found.config.run.quiet = true;
  return found;
}

}  // namespace

StepReport plan(const Config& config, const std::optional<Samples>& samples) {
  const ConfigAndData found = config_and_data(config, samples);
  engine::PlanReport report = engine::explain_plan(found.config, found.set, false);
  return {.text = std::move(report.text), .json = std::move(report.json)};
}

StepReport profile(const Config& config, const std::optional<Samples>& samples, double seconds) {
  const ConfigAndData found = config_and_data(config, samples);
  engine::ProfileOptions options;
  options.seconds = seconds;
  options.set = found.set;
  const engine::Profile profile = engine::profile_training(
      found.config, samples ? "arrays in memory" : found.config.data.name, options);
  StepReport report{.text = engine::to_text(profile), .json = engine::to_json_text(profile)};
  if (profile.ceilings) report.roofline = prof::to_svg(engine::roofline_of(profile));
  return report;
}

}  // namespace ridgeline
