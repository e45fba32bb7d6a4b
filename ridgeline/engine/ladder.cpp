#include "ridgeline/engine/ladder.h"

#include <algorithm>
#include <cmath>

#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/random_set.h"
#include "ridgeline/engine/trainer.h"
#include "ridgeline/prof/limit.h"

namespace ridgeline::engine {
namespace {

constexpr int64_t kCheckedSteps = 2;

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

// The weights after a few steps from the same start, one number after the other.
std::vector<double> trained(Trainer& trainer, int64_t steps) {
  while (trainer.step() < steps) trainer.advance(steps - trainer.step());
  std::vector<double> all;
  for (const nn::Param& param : trainer.model().params()) {
    const Tensor& view = param.value.view();
    if (view.dtype == DType::fp64) {
      all.insert(all.end(), view.as<double>(), view.as<double>() + view.numel());
    } else {
      all.insert(all.end(), view.as<float>(), view.as<float>() + view.numel());
    }
  }
  return all;
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
    default:  // tf32 and fp16 carry eleven bits
      return 0x1p-11;
  }
}

// How far the change of the weights over a few steps may be from the reference's, relative to its
// norm. A sum of n products rounded at random errs by about sqrt(n) roundings of its scale; eight
// of them leave room for three products in a chain and the update. One row left out of a batch of n
// errs by 1/n or more.
double bound_of(const Config& config, const nn::Model& model) {
  int64_t longest = config.train.batch;
  for (size_t i = 0; i < model.layers().size(); ++i) {
    longest = std::max(longest, model.input_of(i).numel());
  }
  return 8 * std::sqrt(double(longest)) * unit_roundoff(config.run.precision);
}

// Norm of the difference of the two changes over the norm of the reference's.
double change_error(const std::vector<double>& got, const std::vector<double>& want,
                    const std::vector<double>& start) {
  double difference = 0, change = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    change += (want[i] - start[i]) * (want[i] - start[i]);
  }
  return change > 0 ? std::sqrt(difference / change) : std::sqrt(difference);
}

void check_rung(const Config& config, Machine& machine,
                const std::shared_ptr<const data::DataSet>& set, RungResult& result) {
  Machine plain = Machine::reference();
  // Weights are stored in the rung's own type in both, so that the start is the same.
  Config reference = config;
  reference.run.precision =
      config.run.precision == Precision::fp64 ? Precision::fp64 : Precision::fp32;
  Trainer expected(plain, reference, set), measured(machine, config, set);
  const auto start = trained(expected, 0);
  const auto want = trained(expected, kCheckedSteps), got = trained(measured, kCheckedSteps);
  result.error = change_error(got, want, start);
  // What storing the weights rounds away counts against a small change of them.
  double norm = 0, change = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    norm += want[i] * want[i];
    change += (want[i] - start[i]) * (want[i] - start[i]);
  }
  result.bound = bound_of(config, measured.model()) +
                 2 * kCheckedSteps * unit_roundoff(reference.run.precision) *
                     (change > 0 ? std::sqrt(norm / change) : 1);
  if (!(result.error <= result.bound)) {
    throw_error(ErrorKind::numeric,
                "ladder: rung {} is wrong: its weights are off the reference's by {:.3g} after {} "
                "steps, the bound is {:.3g}; please report it",
                result.name, result.error, kCheckedSteps, result.bound);
  }
}

double time_rung(const Rung& rung, Trainer& trainer, double seconds) {
  Runner& runner = trainer.runner();
  trainer.advance(1);
  trainer.losses();
  const std::vector<double> rates(runner.lowered().lr ? size_t(runner.repeats()) : 0, 0.01);
  std::vector<double> us;
  const Clock total;
  while (us.size() < 5 || (total.seconds() < seconds && us.size() < 10000)) {
    const Clock clock;
    int64_t steps = 1;
    if (rung.launches_alone) {
      runner.set_inputs(0, 0, rates);
      for (size_t i = 0; i < runner.plan().choices().size(); ++i) runner.plan().run_choice(i);
      runner.plan().runtime().synchronize();
    } else {
      steps = trainer.advance(runner.repeats());
      trainer.losses();
    }
    us.push_back(1e6 * clock.seconds() / double(steps));
  }
  std::nth_element(us.begin(), us.begin() + int64_t(us.size() / 2), us.end());
  return us[us.size() / 2];
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
    check_rung(config, machine, set, result);
    Trainer trainer(machine, config, set);
    result.us_per_step = time_rung(rung, trainer, options.seconds);
    result.us_per_input = result.us_per_step / double(result.batch);
    result.rows = trainer.runner().row_names();
    if (const auto ceilings = machine.ceilings()) {
      const prof::Limit limit = prof::limit_of(trainer.runner().plan().program(), *ceilings);
      result.limit_fraction = limit.fraction(1e-6 * result.us_per_step);
    }
  } catch (const Error& error) {
    // A row or precision that is not here: the rung cannot be made, which is no fault of the
    // others.
    if (error.kind() != ErrorKind::usage) throw;
    result.skipped = error.what();
  }
  return result;
}

}  // namespace

LadderResult climb(const Ladder& ladder, const LadderOptions& options) {
  LadderResult result;
  result.ladder = ladder.name;
  const Device device = choose_device(options.run.device);
  result.device = to_string(device);
  RunConfig run = options.run;
  result.machine = Machine(run).runtime().fingerprint();
  const auto set = random_data(40 * ladder.batch, ladder.item, ladder.classes);
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
