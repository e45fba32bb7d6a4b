#include <algorithm>
#include <cmath>
#include <functional>

#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/ladder/rung.h"
#include "ridgeline/engine/predict.h"
#include "ridgeline/engine/resident_set.h"

namespace ridgeline::engine {
namespace {

constexpr int64_t kCheckedSamples = 2;  // reference loops over a large net take a second per sample

// Returns the samples' logits up to a constant each, recovered from the probabilities.
std::vector<double> centred_logits(std::span<const double> probabilities, int64_t classes) {
  std::vector<double> all;
  for (size_t first = 0; first < probabilities.size(); first += size_t(classes)) {
    double mean = 0;
    for (int64_t c = 0; c < classes; ++c) mean += std::log(probabilities[first + size_t(c)]);
    mean /= double(classes);
    for (int64_t c = 0; c < classes; ++c) {
      all.push_back(std::log(probabilities[first + size_t(c)]) - mean);
    }
  }
  return all;
}

// The bound of the difference of logits from the reference's, relative to their norm. Each layer
// stores its results and sums as many products as it has inputs; errors of different numbers are
// independent, so over the layers they add up like a random walk. Four times that is never reached
// in practice; leaving out a tap, a channel or a timestep errs by far more.
double forward_bound(const nn::Model& model, Precision precision) {
  const double stored = unit_roundoff(precision);
  const double summed = precision == Precision::fp64 ? 0x1p-53 : 0x1p-24;
  double square = 0;
  for (size_t i = 0; i < model.layers().size(); ++i) {
    const double terms = double(model.input_of(i).numel());
    square += stored * stored + terms * summed * summed;
  }
  return 4 * std::sqrt(2 * square);
}

double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(difference / norm);
}

nn::Model initial_model(const RungWork& work) {
  nn::Model model = work.config.build_model(work.set->train.sample_shape());
  model.initialise(work.config.train.seed);
  return model;
}

// Returns the samples of this process: all of them, or its equal share.
std::span<const uint8_t> rung_samples(const RungWork& work, int64_t batch) {
  const data::SampleSet& samples = work.set->train;
  const auto bytes = samples.inputs.span<const uint8_t>();
  const Communicator* ranks = work.ranks();
  const Range part =
      ranks != nullptr ? split(batch, ranks->rank(), ranks->size()) : Range{0, batch};
  const auto sample_bytes = size_t(samples.sample_shape().numel());
  return bytes.subspan(size_t(part.begin) * sample_bytes,
                       size_t(part.end - part.begin) * sample_bytes);
}

void check_predictions(const RungWork& work, const nn::Model& model, Predictor& predictor,
                       RungResult& result) {
  const data::Scaling scaling = scaling_for(work.config.data.scale, work.set->train);
  const auto bytes = rung_samples(work, result.batch);
  const auto sample_bytes = size_t(model.input().numel());
  const int64_t count = std::min(kCheckedSamples, int64_t(bytes.size() / sample_bytes));
  const int64_t classes = work.set->train.classes;
  const auto some = bytes.first(size_t(count) * sample_bytes);
  Config plain_config = work.config;
  plain_config.run.precision =
      work.config.run.precision == Precision::fp64 ? Precision::fp64 : Precision::fp32;
  plain_config.run.kernels.clear();
  Machine plain = Machine::reference();
  Predictor reference(plain, plain_config, model, scaling, int(classes), count);
  const auto want = centred_logits(reference.run(some), classes);
  std::vector<double> got = predictor.run(bytes);
  got.resize(size_t(count * classes));
  result.error = relative_error(centred_logits(got, classes), want);
  result.bound = forward_bound(model, work.config.run.precision);
  if (!(result.error <= result.bound)) {
    throw_error(ErrorKind::numeric,
                "ladder: rung {} is wrong: its logits are off the reference's by {:.3g}, the bound "
                "is {:.3g}; please report it",
                result.name, result.error, result.bound);
  }
}

// Returns one step of the rung. Bytes are on the device and probabilities stay there, unless the
// rung says otherwise.
std::function<void()> step_of(const RungWork& work, Predictor& predictor,
                              std::span<const uint8_t> samples) {
  Runner& runner = predictor.runner();
  if (work.rung.from_host) return [&predictor, samples] { predictor.run(samples); };
  if (!work.rung.launches_alone) return [&runner] { runner.launch(0, 1); };
  return [&runner] {
    runner.set_inputs(0, 0, {});
    for (size_t i = 0; i < runner.plan().choices().size(); ++i) runner.plan().run_choice(i);
  };
}

// Returns the seconds of a step, by the host's clock if the host or other ranks take part in it.
double time_forward(const RungWork& work, const std::function<void()>& once) {
  Runtime& runtime = work.machine.runtime();
  once();
  runtime.synchronize();
  if (work.ranks() == nullptr && !work.rung.from_host) return runtime.time(once, work.seconds);
  std::vector<double> seconds;
  const Clock total;
  while (work.agreed(seconds.size() < 5 ||
                     (total.seconds() < work.seconds && seconds.size() < 10000))) {
    if (Communicator* ranks = work.ranks()) ranks->barrier();
    const Clock clock;
    once();
    runtime.synchronize();
    seconds.push_back(clock.seconds());
    if (Communicator* ranks = work.ranks()) {
      seconds.back() = ranks->reduce(seconds.back(), Reduce::max);
    }
  }
  std::nth_element(seconds.begin(), seconds.begin() + int64_t(seconds.size() / 2), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

void measure_forward(const RungWork& work, RungResult& result) {
  const nn::Model model = initial_model(work);
  const data::Scaling scaling = scaling_for(work.config.data.scale, work.set->train);
  const auto samples = rung_samples(work, result.batch);
  Predictor predictor(work.machine, work.config, model, scaling, work.set->train.classes,
                      int64_t(samples.size()) / model.input().numel());
  check_predictions(work, model, predictor, result);
  const double seconds = time_forward(work, step_of(work, predictor, samples));
  fill_times(1e6 * seconds, predictor.runner(), work.machine, result);
}

}  // namespace ridgeline::engine
