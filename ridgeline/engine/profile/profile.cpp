#include "ridgeline/engine/profile/profile.h"

#include <algorithm>
#include <numeric>

#include "ridgeline/core/cache_file.h"
#include "ridgeline/engine/bench/random_set.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/launch_samples.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/predict.h"
#include "ridgeline/engine/profile/profiler.h"
#include "ridgeline/engine/profile/program_use.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/resident_set.h"
#include "ridgeline/engine/train/trainer.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

// Adds how the gradients are sent, and the time that this should take.
void add_network(Profile& profile, Communicator& ranks, const Program& program) {
  RankUse& use = profile.ranks.emplace();
  use.count = ranks.size();
  use.mpi = mpi_info_of(ranks);
  use.network = prof::network_of(ranks, cache_file(fmt::format("network-{}.json", use.count)));
  if (profile.ceilings) profile.ceilings->network_bandwidth = use.network.bandwidth;
  for (const Op& op : program.ops) {
    const auto* start = std::get_if<AllReduceStart>(&op);
    if (start == nullptr) continue;
    const double sent = start->network_bytes();
    use.bytes += sent;
    const double whole = sent * use.count / (2.0 * (use.count - 1));  // of the gradients, as sent
    use.predicted += prof::all_reduce_seconds(whole, use.count, use.network);
  }
}

// Adds the measurements that all profiles have.
void measure(Profile& profile, Machine& machine, Runner& runner, const Config& config,
             const ProfileOptions& options, DeviceTracer* tracer) {
  profile.device = to_string(machine.device());
  profile.machine = machine.runtime().fingerprint();
  profile.unit = config.run.precision;
  profile.precision = name(config.run.precision);
  profile.data = config.data.name;
  profile.threads = machine.threads();
  profile.plan_source = runner.explanation().source;
  // Recording slows launches down, so ceilings must be measured without it.
  const Clock paused;
  if (tracer != nullptr) tracer->pause(true);
  profile.ceilings = machine.ceilings();
  if (tracer != nullptr) tracer->pause(false);
  profile.paused_seconds = paused.seconds();
  if (profile.ceilings) {
    profile.limit = prof::limit_of(runner.plan().program(), *profile.ceilings);
  }
  Communicator* ranks = machine.ranks();
  if (ranks != nullptr && ranks->size() > 1) add_network(profile, *ranks, runner.plan().program());
  take_profile(machine, runner, options, tracer, profile);
  profile.program = program_use();
  profile.explanation = explain_calls(profile);
}

std::unique_ptr<DeviceTracer> tracer_for(const RunConfig& run, Profile& profile) {
  const Device device = choose_device(run.device);
  if (device.is_host()) return nullptr;
  // Launches stay slower while recording pauses (3 us instead of 0.7 on an H200), so the first
  // profile on a machine opens the device twice to measure its ceilings without a recorder.
  if (!Machine::keeps_ceilings(device)) Machine(run).ceilings();
  return trace_gpus(profile.no_device_trace);
}

}  // namespace

Quantiles quantiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) { return values[size_t(q * double(values.size() - 1) + 0.5)]; };
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {at(0.1),
          at(0.5),
          at(0.9),
          sum / double(values.size()),
          values.front(),
          values.back(),
          int64_t(values.size())};
}

double Profile::kernel_seconds() const {
  double sum = 0;
  for (const KernelProfile& kernel : kernels) sum += kernel.seconds.median;
  return sum;
}

std::vector<size_t> Profile::heaviest() const {
  std::vector<size_t> order(kernels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return kernels[a].share > kernels[b].share; });
  double sum = 0;
  size_t count = 0;
  while (count < order.size() && sum < 0.9) sum += kernels[order[count++]].share;
  order.resize(count);
  return order;
}

Profile profile_runner(Machine& machine, Runner& runner, const Config& config,
                       const ProfileOptions& options) {
  Profile profile;
  profile.subject = "training step";
  profile.batch = config.train.batch;
  if (!machine.device().is_host()) {
    profile.no_device_trace = "`ridgeline profile` records them";
  }
  measure(profile, machine, runner, config, options, nullptr);
  return profile;
}

Profile profile_training(const Config& config, const std::string& name,
                         const ProfileOptions& options) {
  Profile profile;
  profile.subject = "training step of " + name;
  auto tracer = tracer_for(config.run, profile);
  auto set = options.set;
  if (!set) set = std::make_shared<data::DataSet>(load_data(config, options.data));
  Communicator* ranks =
      options.ranks != nullptr && options.ranks->size() > 1 ? options.ranks : nullptr;
  if (ranks != nullptr) {
    check_alike(*ranks, config, *set);
    // Steps under the tracer are steps of all ranks.
    const bool traced = tracer != nullptr;
    if (ranks->reduce(int32_t(traced), Reduce::min) == 0) tracer.reset();
    if (traced && !tracer) profile.no_device_trace = "another rank cannot record them";
  }
  Machine machine(config.run, ranks);
  Trainer trainer(machine, config, std::move(set));
  trainer.advance(1);  // puts an epoch's order in place
  trainer.losses();
  profile.batch = trainer.batches().full_size();
  measure(profile, machine, trainer.runner(), config, options, tracer.get());
  return profile;
}

namespace {

// The parts of an inference call, from a file or a ladder.
struct Inference {
  std::string subject;
  const Config& config;
  const nn::Model& model;
  const data::Scaling& scaling;
  int classes;
};

Profile profile_inference(const Inference& what, std::span<const uint8_t> samples,
                          const ProfileOptions& options) {
  Profile profile;
  profile.subject = "inference call of " + what.subject;
  const auto tracer = tracer_for(what.config.run, profile);
  Machine machine(what.config.run);
  profile.batch = int64_t(samples.size()) / what.model.input().numel();
  Predictor predictor(machine, what.config, what.model, what.scaling, what.classes, profile.batch);
  predictor.run(samples);
  measure(profile, machine, predictor.runner(), what.config, options, tracer.get());
  return profile;
}

}  // namespace

Profile profile_model(const std::filesystem::path& file, const ModelOptions& model,
                      const ProfileOptions& options) {
  const LoadedModel loaded = load_model(file, model);
  const int64_t batch =
      options.batch > 0 ? options.batch : launch_samples(256, loaded.model.input().numel());
  const std::vector<uint8_t> samples(size_t(batch * loaded.model.input().numel()), 127);
  return profile_inference(
      {file.string(), loaded.config, loaded.model, loaded.scaling, loaded.classes}, samples,
      options);
}

Profile profile_ladder(const Ladder& ladder, const Config& config, const ProfileOptions& options) {
  const int64_t batch = options.batch > 0 ? options.batch : ladder.batch;
  const int codes = ladder.codes > 0 ? ladder.codes : 256;
  const auto set =
      random_data(ladder.forward ? batch : 40 * batch, ladder.sample, ladder.classes, codes);
  if (!ladder.forward) {
    ProfileOptions with_set = options;
    with_set.set = set;
    Config large = config;
    large.train.batch = batch;
    return profile_training(large, ladder.name, with_set);
  }
  nn::Model model = config.build_model(ladder.sample);
  model.initialise(config.train.seed);
  const data::Scaling scaling = scaling_for(config.data.scale, set->train);
  return profile_inference({ladder.name, config, model, scaling, ladder.classes},
                           set->train.inputs.span<const uint8_t>(), options);
}

}  // namespace ridgeline::engine
