#include "ridgeline/engine/population/population.h"

#include <cmath>
#include <map>

#include "ridgeline/api/train_arrays.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/population/ensemble.h"

namespace ridgeline {
namespace {

std::optional<double> if_number(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

MemberResult to_result(const engine::MemberResult& from) {
  MemberResult result;
  result.error = from.error;
  if (!from.error.empty()) return result;
  TrainResult trained{.model = Model::from_bytes(from.model)};
  const engine::TrainReport& report = from.report;
  trained.steps = report.steps;
  trained.train_loss = report.train_loss;
  trained.train_accuracy = if_number(report.train_accuracy);
  if (report.test.samples > 0) {
    trained.test_loss = report.test.loss;
    trained.test_accuracy = if_number(report.test.accuracy);
  }
  trained.seconds = report.train_seconds;
  trained.samples_per_second = report.inputs_per_second;
  if (report.limit) trained.limit = report.limit_fraction;
  result.pruned_after = from.pruned_after;
  result.score = from.score;
  result.trained = std::move(trained);
  return result;
}

}  // namespace

std::vector<MemberResult> train_population(const std::vector<Config>& configs,
                                           const Samples& samples,
                                           const PopulationOptions& options) {
  std::vector<engine::Member> members;
  // Configs with the same preparation share the prepared arrays.
  std::map<std::string, std::shared_ptr<const data::DataSet>> sets;
  for (const Config& config : configs) {
    const engine::Config parsed = api::parse_for_arrays(config, samples);
    auto& set = sets[engine::data_key(parsed)];
    if (!set) {
      set =
          api::prepare_arrays(parsed, samples, options.test, options.validation, options.hold_out);
    }
    members.push_back({parsed, set});
  }
  engine::PopulationOptions population;
  population.models = true;
  if (options.prune_factor > 0) {
    population.prune.emplace();
    population.prune->factor = options.prune_factor;
    population.prune->first_epochs = options.prune_epochs;
  }
  std::vector<MemberResult> results(configs.size());
  population.finished = [&](size_t member, const engine::MemberResult& each) {
    results[member] = to_result(each);
    if (options.finished) options.finished(member, results[member]);
  };
  const engine::PopulationResult outcome = engine::train_population(members, population);
  if (outcome.failed) throw *outcome.failed;
  return results;
}

Model ensemble(const std::vector<Model>& models) {
  std::vector<std::vector<std::byte>> files;
  for (const Model& model : models) files.push_back(model.to_bytes());
  return Model::from_bytes(engine::make_ensemble(files));
}

}  // namespace ridgeline
