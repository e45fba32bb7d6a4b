#include "ridgeline/engine/ladder.h"

#include "ridgeline/engine/ladder_rung.h"
#include "ridgeline/engine/random_set.h"
#include "ridgeline/prof/limit.h"

namespace ridgeline::engine {
namespace {

Config config_of(const Ladder& ladder, const Rung& rung, const RunConfig& run) {
  Config config =
      parse_config(std::string("[data]\nname = \"random\"\n") + ladder.network, "ladder");
  config.train.batch = rung.batch > 0 ? rung.batch : ladder.batch;
  config.run = run;
  config.run.precision = rung.precision;
  config.run.rows.assign(rung.rows.begin(), rung.rows.end());
  if (rung.threads > 0) config.run.threads = rung.threads;
  return config;
}

RungResult run_rung(const Ladder& ladder, const Rung& rung, const LadderOptions& options,
                    const std::shared_ptr<const data::DataSet>& set) {
  RungResult result;
  result.name = rung.name;
  result.what = rung.what;
  result.precision = name(rung.precision);
  result.founding_us = rung.founding_us;
  const Config config = config_of(ladder, rung, options.run);
  result.batch = config.train.batch;
  try {
    Machine machine(config.run);
    result.threads = machine.threads();
    const RungWork work{rung, config, machine, set, options.seconds};
    ladder.forward ? measure_forward(work, result) : measure_training(work, result);
  } catch (const Error& error) {
    // A row or precision that is not here: the rung cannot be made, which is no fault of the
    // others.
    if (error.kind() != ErrorKind::usage) throw;
    result.skipped = error.what();
  }
  return result;
}

}  // namespace

double unit_roundoff(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return 0x1p-53;
    case Precision::fp32:
    case Precision::fp32x3:
      return 0x1p-24;
    case Precision::bf16:
      return 0x1p-8;
    default:  // tf32 and fp16 carry eleven bits
      return 0x1p-11;
  }
}

void fill_times(double us_per_step, Runner& runner, Machine& machine, RungResult& result) {
  result.us_per_step = us_per_step;
  result.us_per_input = us_per_step / double(result.batch);
  result.rows = runner.row_names();
  if (const auto ceilings = machine.ceilings()) {
    const prof::Limit limit = prof::limit_of(runner.plan().program(), *ceilings);
    result.limit_fraction = limit.fraction(1e-6 * us_per_step);
  }
}

LadderResult climb(const Ladder& ladder, const LadderOptions& options) {
  LadderResult result;
  result.ladder = ladder.name;
  const Device device = choose_device(options.run.device);
  result.device = to_string(device);
  RunConfig run = options.run;
  result.machine = Machine(run).runtime().fingerprint();
  const auto set = random_data(ladder.forward ? ladder.batch : 40 * ladder.batch, ladder.item,
                               ladder.classes, ladder.codes > 0 ? ladder.codes : 256);
  const RungResult *first = nullptr, *before = nullptr;
  const auto& rungs = device.kind == DeviceKind::cpu ? ladder.cpu : ladder.cuda;
  result.rungs.reserve(rungs.size());
  for (const Rung& rung : rungs) {
    result.rungs.push_back(run_rung(ladder, rung, options, set));
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
