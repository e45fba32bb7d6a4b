#include <algorithm>
#include <cmath>

#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/ladder/rung.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/train/trainer.h"

namespace ridgeline::engine {
namespace {

constexpr int64_t kCheckedSteps = 2;

// Returns the weights after a few steps from the same start, flattened.
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

// The bound of the difference of the weights' change over a few steps from the reference's,
// relative to its norm. A sum of n products rounded at random errs by about sqrt(n) roundings of
// its scale; eight of them allow for three products in a chain and the update. Leaving out one
// sample of a batch of n errs by 1/n or more.
double training_bound(const Config& config, const nn::Model& model) {
  int64_t longest = config.train.batch;
  for (size_t i = 0; i < model.layers().size(); ++i) {
    longest = std::max(longest, model.input_of(i).numel());
  }
  return 8 * std::sqrt(double(longest)) * unit_roundoff(config.run.precision);
}

// Returns the norm of the difference of the two changes over the norm of the reference's.
double change_error(const std::vector<double>& got, const std::vector<double>& want,
                    const std::vector<double>& start) {
  double difference = 0, change = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    change += (want[i] - start[i]) * (want[i] - start[i]);
  }
  return change > 0 ? std::sqrt(difference / change) : std::sqrt(difference);
}

// Returns a machine whose steps are right: reference kernels or, since plain loops would take
// minutes for so many weights, the CPU's fast kernels, which the table walk compares with those.
Machine reference_for(const Config& config, const Shape& sample) {
  constexpr int64_t kMostByLoops = 4'000'000;
  if (config.build_model(sample).parameter_count() <= kMostByLoops) return Machine::reference();
  RunConfig run;
  run.device = "cpu";
  run.precision = config.run.precision;
  run.tune = false;
  return Machine(run);
}

// The reference computes the whole batch on one thread, whatever the rung's ranks: with the same
// seed all start with the same weights.
const ReferenceSteps& reference_steps(const RungWork& work) {
  Config config = work.config;
  // Both store weights in the rung's own type, so that the start is the same.
  config.run.precision =
      config.run.precision == Precision::fp64 ? Precision::fp64 : Precision::fp32;
  const std::string key = fmt::format("{} {}", config.train.batch, name(config.run.precision));
  const auto found = work.references.find(key);
  if (found != work.references.end()) return found->second;
  Machine plain = reference_for(config, work.set->train.sample_shape());
  Trainer trainer(plain, config, work.set);
  ReferenceSteps steps;
  steps.start = trained(trainer, 0);
  steps.after = trained(trainer, kCheckedSteps);
  return work.references[key] = std::move(steps);
}

void check_rung(const RungWork& work, RungResult& result) {
  const Config& config = work.config;
  Trainer measured(work.machine, config, work.set);
  const auto got = trained(measured, kCheckedSteps);
  if (Communicator* ranks = work.ranks()) {
    check_replicas(*ranks, measured.snapshot(), kCheckedSteps);
    if (!ranks->is_root()) return;  // all ranks have the same weights, so the root's check suffices
  }
  const auto& [start, want] = reference_steps(work);
  result.error = change_error(got, want, start);
  // Rounding when the weights are stored matters if their change is small.
  double norm = 0, change = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    norm += want[i] * want[i];
    change += (want[i] - start[i]) * (want[i] - start[i]);
  }
  result.bound = training_bound(config, measured.model()) +
                 2 * kCheckedSteps *
                     unit_roundoff(config.run.precision == Precision::fp64 ? Precision::fp64
                                                                           : Precision::fp32) *
                     (change > 0 ? std::sqrt(norm / change) : 1);
  if (!(result.error <= result.bound)) {
    throw_error(ErrorKind::numeric,
                "ladder: rung {} is wrong: its weights are off the reference's by {:.3g} after {} "
                "steps, the bound is {:.3g}; please report it",
                result.name, result.error, kCheckedSteps, result.bound);
  }
}

double time_rung(const RungWork& work, Trainer& trainer) {
  Runner& runner = trainer.runner();
  trainer.advance(1);
  trainer.losses();
  const std::vector<double> rates(runner.lowered().lr ? size_t(runner.repeats()) : 0, 0.01);
  std::vector<double> us;
  const Clock total;
  while (work.agreed(us.size() < 5 || (total.seconds() < work.seconds && us.size() < 10000))) {
    const Clock clock;
    int64_t steps = 1;
    if (work.rung.launches_alone) {
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

}  // namespace

void measure_training(const RungWork& work, RungResult& result) {
  check_rung(work, result);
  Trainer trainer(work.machine, work.config, work.set);
  const double us = time_rung(work, trainer);
  fill_times(us, trainer.runner(), work.machine, result);
}

}  // namespace ridgeline::engine
