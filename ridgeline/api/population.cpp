#include "ridgeline/engine/population/population.h"

#include <map>

#include "ridgeline/api/results.h"
#include "ridgeline/api/train_arrays.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/population/ensemble.h"

namespace ridgeline {
namespace {

MemberResult to_result(const engine::MemberResult& from) {
  MemberResult result;
  result.error = from.error;
  if (!from.error.empty()) return result;
  result.pruned_after = from.pruned_after;
  result.score = from.score;
  result.trained = api::result_of(from.report, Model::from_bytes(from.model));
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
