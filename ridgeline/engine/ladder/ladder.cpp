#include "ridgeline/engine/ladder/ladder.h"

#include <algorithm>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/engine/bench/random_set.h"
#include "ridgeline/engine/ladder/rung.h"
#include "ridgeline/prof/limit.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

Config config_of(const Ladder& ladder, const Rung& rung, const RunConfig& run) {
  Config config = ladder_config(ladder);
  config.train.batch = rung.batch > 0 ? rung.batch : ladder.batch;
  config.run = run;
  config.run.precision = rung.precision;
  config.run.accumulate = rung.accumulate;
  config.run.kernels.assign(rung.kernels.begin(), rung.kernels.end());
  config.run.kernels.insert(config.run.kernels.end(), run.kernels.begin(), run.kernels.end());
  if (rung.threads > 0) config.run.threads = rung.threads;
  return config;
}

constexpr int kMostRanks = 4;  // on a CPU, by default

int rank_count(const LadderOptions& options) {
  if (options.rank_count > 0) return options.rank_count;
  if (!choose_device(options.run.device).is_host()) return int(gpus().size());
  return std::min(kMostRanks, resolve_threads(0));
}

// Describes what the rung did, if the machine did not allow what it is meant to show.
void label(const Rung& rung, RungResult& result) {
  if (rung.without == nullptr) return;
  for (const std::string& kernel : result.kernels) {
    if (kernel.starts_with(rung.without)) result.what = rung.otherwise;
  }
}

// Separate processes run the rung; their result becomes this process's.
void run_on_ranks(const Rung& rung, const LadderOptions& options, RungResult& result) {
  const int ranks = rank_count(options);
  if (ranks < 2 || !options.launch) {
    throw_error(ErrorKind::usage,
                "this machine has one {}; --ranks 2 shares it between processes, which shows how "
                "gradients travel and gains nothing",
                choose_device(options.run.device).is_host() ? "core" : "GPU");
  }
  std::string text;
  try {
    text = options.launch(rung, ranks);
  } catch (const Error& error) {
    // There is no launcher, or it cannot start processes here; other rungs still run.
    if (error.kind() != ErrorKind::comm) throw;
    result.skipped = error.what();
    return;
  }
  const LadderResult found = ladder_from_json(text);
  if (found.rungs.size() != 1) {
    throw_error(ErrorKind::comm, "ladder: the ranks of rung {} sent no result", rung.name);
  }
  result = found.rungs.front();
}

class Climber {
 public:
  Climber(const Ladder& ladder, const LadderOptions& options)
      : ladder_(ladder), options_(options), set_(data_for(ladder)) {}

  RungResult run(const Rung& rung) {
    RungResult result;
    result.name = rung.name;
    result.what = rung.what;
    result.precision = name(rung.precision);
    result.founding_us = rung.founding_us;
    const Config config = config_of(ladder_, rung, options_.run);
    result.batch = config.train.batch;
    try {
      if (rung.ranks && options_.ranks == nullptr) {
        run_on_ranks(rung, options_, result);
      } else {
        measure(rung, config, result);
      }
      label(rung, result);
    } catch (const Error& error) {
      // A kernel or precision is not available: this rung cannot run, but others can.
      if (error.kind() != ErrorKind::usage) throw;
      result.skipped = error.what();
    }
    return result;
  }

 private:
  static std::shared_ptr<const data::DataSet> data_for(const Ladder& ladder) {
    int64_t samples = ladder.forward ? ladder.batch : 40 * ladder.batch;
    for (const auto* rungs : {&ladder.cpu, &ladder.cuda}) {
      for (const Rung& rung : *rungs) samples = std::max(samples, rung.batch);
    }
    return random_data(samples, ladder.sample, ladder.classes,
                       ladder.codes > 0 ? ladder.codes : 256);
  }

  void measure(const Rung& rung, const Config& config, RungResult& result) {
    Machine machine(config.run, options_.ranks);
    result.threads = machine.threads();
    result.ranks = options_.ranks != nullptr ? options_.ranks->size() : 1;
    const RungWork work{rung, config, machine, set_, options_.seconds, references_};
    ladder_.forward ? measure_forward(work, result) : measure_training(work, result);
  }

  const Ladder& ladder_;
  const LadderOptions& options_;
  std::shared_ptr<const data::DataSet> set_;
  std::map<std::string, ReferenceSteps> references_;
};

}  // namespace

Config ladder_config(const Ladder& ladder, const std::vector<std::string>& sets) {
  return parse_config("[data]\nname = \"random\"\n" + ladder.network, "ladder", sets);
}

double unit_roundoff(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return 0x1p-53;
    case Precision::fp32:
    case Precision::fp32x3:
      return 0x1p-24;
    case Precision::bf16:
      return 0x1p-8;
    default:  // tf32 and fp16 have eleven significant bits
      return 0x1p-11;
  }
}

void fill_times(double us_per_step, Runner& runner, Machine& machine, RungResult& result) {
  result.us_per_step = us_per_step;
  result.us_per_input = us_per_step / double(result.batch);
  result.kernels = runner.kernel_names();
  if (const auto ceilings = machine.ceilings()) {
    // The limit of one rank's share, which all ranks with a device of their own compute at once.
    const prof::Limit limit = prof::limit_of(runner.plan().program(), *ceilings);
    result.limit_fraction = limit.fraction(1e-6 * us_per_step);
  }
}

namespace {
void refuse_unknown(const std::string& wanted, const std::vector<Rung>& rungs) {
  if (wanted.empty()) return;
  std::string names;
  for (const Rung& rung : rungs) {
    if (wanted == rung.name) return;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", rung.name);
  }
  throw_error(ErrorKind::usage, "--rung: this ladder has no rung '{}' here; it has {}", wanted,
              names);
}

// The kernels of a rung define it, so --kernels may only exclude some of them.
void refuse_added(const std::vector<std::string>& kernels) {
  for (const std::string& pattern : kernels) {
    if (pattern.starts_with('!')) continue;
    throw_error(
        ErrorKind::usage,
        "--kernels {}: each rung of a ladder has kernels of its own; '!NAME' takes kernels away "
        "from all of them",
        pattern);
  }
}
}  // namespace

LadderResult climb(const Ladder& ladder, const LadderOptions& options) {
  refuse_added(options.run.kernels);
  LadderResult result;
  result.ladder = ladder.name;
  const Device device = choose_device(options.run.device);
  result.device = to_string(device);
  result.machine = Machine(options.run, options.ranks).runtime().fingerprint();
  Climber climber(ladder, options);
  const RungResult *first = nullptr, *before = nullptr;
  const auto& rungs = device.is_host() ? ladder.cpu : ladder.cuda;
  if (rungs.empty()) {
    throw_error(ErrorKind::usage, "ladder {}: its rungs are for GPUs; use --device cuda",
                ladder.name);
  }
  refuse_unknown(options.rung, rungs);
  result.rungs.reserve(rungs.size());
  for (const Rung& rung : rungs) {
    if (!options.rung.empty() && options.rung != rung.name) continue;
    result.rungs.push_back(climber.run(rung));
    RungResult& now = result.rungs.back();
    if (now.skipped.empty()) {
      now.gain = before != nullptr ? before->us_per_input / now.us_per_input : 1;
      now.total_gain = first != nullptr ? first->us_per_input / now.us_per_input : 1;
      before = &now;
      if (first == nullptr) first = &now;
    }
    if (options.each) options.each(now);
  }
  return result;
}

}  // namespace ridgeline::engine
