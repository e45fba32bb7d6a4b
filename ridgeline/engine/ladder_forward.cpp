#include <algorithm>
#include <cmath>

#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/ladder_rung.h"
#include "ridgeline/engine/predict.h"
#include "ridgeline/engine/resident_set.h"

namespace ridgeline::engine {
namespace {

constexpr int64_t kCheckedItems = 2;  // reference loops over a large net take a second an item

// The items' logits but for a constant each: what probabilities still tell.
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

// How far logits may be from the reference's, relative to their norm. Each layer stores what it
// computes and sums as many products as it has inputs; errors of different numbers are independent,
// so they add up as a random walk does over the layers. Four times that is never seen to be
// reached; a tap, a channel or a step left out errs by far more.
double bound_of(const nn::Model& model, Precision precision) {
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
  nn::Model model = work.config.build_model(work.set->train.item_shape());
  model.initialise(work.config.train.seed);
  return model;
}

void check(const RungWork& work, const nn::Model& model, Predictor& predictor, RungResult& result) {
  const data::ImageSet& items = work.set->train;
  const data::Scaling scaling = scaling_for(work.config.data.scale, items);
  const int64_t count = std::min(kCheckedItems, result.batch), classes = items.classes;
  const auto bytes = items.images.span<const uint8_t>();
  const auto some = bytes.first(size_t(count * model.input().numel()));
  Config plain_config = work.config;
  plain_config.run.precision =
      work.config.run.precision == Precision::fp64 ? Precision::fp64 : Precision::fp32;
  plain_config.run.rows.clear();
  Machine plain = Machine::reference();
  Predictor reference(plain, plain_config, model, scaling, int(classes), count);
  const auto want = centred_logits(reference.run(some), classes);
  std::vector<double> got =
      predictor.run(bytes.first(size_t(result.batch * model.input().numel())));
  got.resize(size_t(count * classes));
  result.error = relative_error(centred_logits(got, classes), want);
  result.bound = bound_of(model, work.config.run.precision);
  if (!(result.error <= result.bound)) {
    throw_error(ErrorKind::numeric,
                "ladder: rung {} is wrong: its logits are off the reference's by {:.3g}, the bound "
                "is {:.3g}; please report it",
                result.name, result.error, result.bound);
  }
}

// Bytes are on the device; probabilities stay there.
double time_forward(const RungWork& work, Runner& runner) {
  Runtime& runtime = runner.plan().runtime();
  const auto once = [&] {
    if (!work.rung.launches_alone) return runner.launch(0, 1);
    runner.set_inputs(0, 0, {});
    for (size_t i = 0; i < runner.plan().choices().size(); ++i) runner.plan().run_choice(i);
  };
  once();
  runtime.synchronize();
  return 1e6 * runtime.time(once, work.seconds);
}

}  // namespace

void measure_forward(const RungWork& work, RungResult& result) {
  const nn::Model model = initial_model(work);
  const data::Scaling scaling = scaling_for(work.config.data.scale, work.set->train);
  Predictor predictor(work.machine, work.config, model, scaling, work.set->train.classes,
                      result.batch);
  check(work, model, predictor, result);
  fill_times(time_forward(work, predictor.runner()), predictor.runner(), work.machine, result);
}

}  // namespace ridgeline::engine
