#include "ridgeline/engine/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ridgeline/data/locate.h"
#include "ridgeline/data/resize.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/launch_samples.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/user_data.h"
#include "ridgeline/nn/softmax.h"

namespace ridgeline::engine {
namespace {

// These are large enough for full speed, and small enough for activations to stay in a cache. A
// size that divides the number of samples needs one plan only.
constexpr int64_t kLeastBatch = 128, kMostBatch = 512;

// Outputs of more numbers than this (64 MB) are not kept.
constexpr int64_t kMostOutputs = int64_t{1} << 24;

int64_t evaluation_batch(int64_t samples, int64_t features) {
  const int64_t most = launch_samples(kMostBatch, features);
  for (int64_t batch = std::min(most, samples); batch >= kLeastBatch; --batch) {
    if (samples % batch == 0) return batch;
  }
  return std::clamp<int64_t>(samples, 1, std::min<int64_t>(256, most));
}

Range share_of(int64_t samples, const Communicator* ranks) {
  return ranks == nullptr ? Range{0, samples} : split(samples, ranks->rank(), ranks->size());
}

// Images are resized in blocks: all of them at once, at the size of a model's input, may take a
// thousand times the memory of their files.
constexpr int64_t kBlockBytes = int64_t{64} << 20;

Shape resized_shape(const data::SampleSet& set, const DataConfig& config) {
  Shape sample = set.sample_shape();
  const int rank = sample.rank();
  if (!config.resize || set.streams > 0 || set.codes > 0 || rank < 2) return sample;
  return sample.with(rank - 2, config.resize->height).with(rank - 1, config.resize->width);
}

data::SampleSet samples_of(const data::SampleSet& set, int64_t first, int64_t count) {
  const auto copy = [&](const HostTensor& from, HostTensor& to) {
    const Tensor& all = from.view();
    to = HostTensor(all.dtype, all.shape.with(0, count));
    const size_t bytes = all.bytes() / size_t(set.size());
    std::copy_n(static_cast<const std::byte*>(all.data) + size_t(first) * bytes,
                size_t(count) * bytes, static_cast<std::byte*>(to.view().data));
  };
  data::SampleSet part;
  copy(set.inputs, part.inputs);
  copy(set.targets, part.targets);
  part.classes = set.classes;
  part.codes = set.codes;
  part.name = set.name;
  return part;
}

void add_evaluation(const Evaluation& part, Evaluation& sum) {
  const auto added = double(part.samples), before = double(sum.samples);
  sum.loss = (sum.loss * before + part.loss * added) / (before + added);
  sum.correct += part.correct;
  sum.samples += part.samples;
  sum.targets += part.targets;
  sum.seconds += part.seconds;
  sum.accuracy =
      std::isnan(part.accuracy) ? part.accuracy : double(sum.correct) / double(sum.targets);
}

// Evaluates a set whose images are still to be resized to the shape `sample`.
Evaluation evaluate_resized(Machine& machine, const LoadedModel& loaded, const data::SampleSet& set,
                            const Shape& sample, const Weights& weights) {
  int64_t most = std::clamp<int64_t>(kBlockBytes / sample.numel(), 1, set.size());
  if (most < set.size() && most > kMostBatch) most -= most % kMostBatch;  // whole batches
  Evaluation sum;
  std::vector<float> outputs;
  std::unique_ptr<Evaluator> evaluator;
  for (int64_t first = 0; first < set.size(); first += most) {
    const int64_t count = std::min(most, set.size() - first);
    data::SampleSet block = samples_of(set, first, count);
    data::resize(block, sample[sample.rank() - 2], sample[sample.rank() - 1]);
    if (evaluator && count == most) {
      evaluator->replace(block);
    } else {
      evaluator.reset();
      evaluator =
          std::make_unique<Evaluator>(machine, loaded.config, loaded.model, block, loaded.scaling);
    }
    add_evaluation(evaluator->run(weights), sum);
    outputs.insert(outputs.end(), evaluator->outputs().begin(), evaluator->outputs().end());
  }
  if (int64_t(outputs.size()) == set.size() * set.outputs()) {
    sum.scores = score(set, outputs, loaded.config.train.loss.kind);
  }
  return sum;
}

data::SampleSet load_own_part(const LoadedModel& loaded, const std::string& path,
                              const std::string& target, data::Part part,
                              const std::filesystem::path& data_dir) {
  const data::SetInfo* named =
      target.empty() && !std::filesystem::exists(path) ? data::find_known_set(path) : nullptr;
  if (named != nullptr && !named->text && !named->records) {  // two files: images and labels
    const std::filesystem::path folder = data::find_set(*named, data_dir, {part});
    const auto file = [&](std::string_view name) {
      return data::find_spelling(folder, name).value().string();
    };
    return load_prepared(file(data::images_file(part)), file(data::labels_file(part)),
                         *loaded.preparation, loaded.config);
  }
  if (!path.empty()) return load_prepared(path, target, *loaded.preparation, loaded.config);
  data::DataSet set = load_user_data(loaded.config, &*loaded.preparation);
  return part == data::Part::train ? std::move(set.train) : std::move(set.test);
}

}  // namespace

std::vector<double> target_units(const data::Preparation* preparation, const data::SampleSet& set) {
  if (preparation == nullptr || !preparation->target() || !set.has_values()) return {};
  const std::vector<double>& scale = preparation->target()->scale;
  if (scale.empty()) return {};
  std::vector<double> units;
  for (int64_t i = 0; i < set.outputs(); ++i) units.push_back(1 / scale[size_t(i) % scale.size()]);
  return units;
}

Scores score(const data::SampleSet& set, std::span<const float> outputs, nn::LossKind loss,
             std::span<const double> units) {
  const auto weights =
      set.has_weights() ? set.weights.span<const float>() : std::span<const float>();
  if (set.has_values() && loss == nn::LossKind::binary_cross_entropy) {
    constexpr double kThreshold = 0.5;  // the outputs are probabilities
    return score_labels(outputs, set.targets.span<const float>(), set.outputs(), kThreshold,
                        weights);
  }
  if (set.has_values()) {
    return score_values(outputs, set.targets.span<const float>(), set.outputs(), units, weights);
  }
  return score_classes(outputs, set.targets.span<const int32_t>(), set.classes, weights);
}

Evaluator::Evaluator(Machine& machine, const Config& config, const nn::Model& model,
                     const data::SampleSet& set, const data::Scaling& scaling,
                     const std::vector<std::string>& pinned,
                     const std::vector<std::string>& pinned_tail, bool stays)
    : machine_(machine),
      model_(model),
      source_(&set),
      base_(lower_options(config, scaling, set)),
      set_(machine.runtime(), set, stays),
      pinned_(pinned),
      pinned_tail_(pinned_tail),
      shared_(machine.ranks() != nullptr && set.streams == 0),
      samples_(shared_ ? share_of(set.size(), machine.ranks()) : Range{0, set.size()}),
      batch_(set.streams > 0 ? set.streams
                             : evaluation_batch(samples_.end - samples_.begin, set.features())) {
  base_.mode = nn::Mode::evaluate;
  base_.set_samples = base_.order_samples = set.size();
  base_.outputs = set.streams == 0 && set.targets_per_sample() == 1 &&
                  set.outputs() == model.output().numel() &&
                  set.size() <= kMostOutputs / std::max<int64_t>(1, set.outputs());
  std::vector<int32_t> order(size_t(set.size()));
  std::iota(order.begin(), order.end(), 0);
  set_.set_order(order);
}

void Evaluator::replace(const data::SampleSet& set) {
  set_.replace(set);
  source_ = &set;
}

std::unique_ptr<Runner> Evaluator::make(int64_t batch, const Weights& weights,
                                        const std::vector<std::string>& pinned) {
  nn::LowerOptions options = base_;
  options.batch = batch;
  // A launch returns the outputs of its last batch only.
  options.repeats =
      keeps_outputs() ? 1 : std::max<int64_t>(1, (samples_.end - samples_.begin) / batch);
  nn::Lowered lowered = nn::lower(model_, options);
  Externals shared;
  set_.bind(lowered, shared);
  weights.bind(lowered, shared);
  return std::make_unique<Runner>(machine_, std::move(lowered), shared, pinned);
}

void Evaluator::prepare(const Weights& weights) {
  if (main_) return;
  const int64_t rest = (samples_.end - samples_.begin) % batch_;
  main_ = make(batch_, weights, pinned_);
  if (rest > 0) {
    tail_ = make(rest, weights, pinned_tail_.empty() ? main_->kernel_names() : pinned_tail_);
  }
}

// Copies the outputs of the runner's last batch to where those of the sample `first` begin.
void Evaluator::keep_outputs(const Runner& runner, int64_t first) {
  const Value& value = runner.lowered().outputs;
  float* to = outputs_.data() + first * source_->outputs();
  dispatch_float(value.dtype, [&](auto zero) {
    for (const auto each : runner.read<decltype(zero)>(value)) *to++ = float(each);
  });
}

// Each rank fills in its own share and leaves zeros elsewhere, so that the sum is exact.
void Evaluator::share_outputs() {
  std::vector<double> all(outputs_.begin(), outputs_.end());
  machine_.ranks()->sum(all);
  for (size_t i = 0; i < all.size(); ++i) outputs_[i] = float(all[i]);
}

double Evaluator::total_weight() const {
  if (!source_->has_weights()) return double(source_->size());
  const auto weights = source_->weights.span<const float>();
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

// The program's own loss expects logits, but an ensemble outputs probabilities.
double Evaluator::loss_of_probabilities() const {
  if (!keeps_outputs()) return std::numeric_limits<double>::quiet_NaN();
  constexpr double kLeast = std::numeric_limits<float>::min();
  const auto log = [&](double p) { return std::log(std::max(kLeast, p)); };
  const auto weight = [&](size_t sample) {
    return source_->has_weights() ? double(source_->weights.span<const float>()[sample]) : 1.0;
  };
  if (source_->has_values()) {
    const auto targets = source_->targets.span<const float>();
    const std::vector<double>& pos_weight = base_.loss.pos_weight;
    double sum = 0;
    for (size_t i = 0; i < targets.size(); ++i) {
      const double p = outputs_[i], t = targets[i];
      const double positive =
          pos_weight.empty() ? 1 : pos_weight[i % size_t(source_->outputs()) % pos_weight.size()];
      sum -=
          weight(i / size_t(source_->outputs())) * (positive * t * log(p) + (1 - t) * log(1 - p));
    }
    return sum / (total_weight() * double(source_->outputs()));
  }
  const auto labels = source_->targets.span<const int32_t>();
  double loss = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    loss -= weight(i) * log(outputs_[i * size_t(source_->outputs()) + size_t(labels[i])]);
  }
  return loss / total_weight();
}

Evaluation Evaluator::run(const Weights& weights) {
  prepare(weights);
  const int64_t samples = samples_.end - samples_.begin, rest = samples % batch_;
  const Clock clock;
  Evaluation result;
  double loss = 0;
  const auto add = [&](Runner& runner, int64_t batch) {
    for (const double each : runner.losses()) loss += each * double(batch);
    for (const int32_t each : runner.corrects()) result.correct += each;
  };
  if (keeps_outputs()) outputs_.assign(size_t(source_->size() * source_->outputs()), 0.0f);
  main_->clear_carried();
  const int64_t batches = samples / batch_;
  // The most batches of a launch that somebody may want to end.
  constexpr int64_t kFewBatches = 16;
  const int64_t steps = keeps_outputs() ? 1 : between_batches_ ? kFewBatches : batches;
  for (int64_t done = 0; done < batches; done += steps) {
    const int64_t first = samples_.begin + done * batch_;
    main_->launch(first, std::min(steps, batches - done));
    add(*main_, batch_);
    if (keeps_outputs()) keep_outputs(*main_, first);
    if (between_batches_) between_batches_();
  }
  if (rest > 0) {
    tail_->launch(samples_.end - rest, 1);
    add(*tail_, rest);
    if (keeps_outputs()) keep_outputs(*tail_, samples_.end - rest);
  }
  if (shared_) {
    std::vector<double> all{loss, double(result.correct)};
    machine_.ranks()->sum(all);
    loss = all[0];
    result.correct = int64_t(all[1]);
  }
  result.samples = set_.samples();
  // With weights the sum of the losses has them already, and the mean is a weighted one.
  result.loss = loss / total_weight();
  result.targets = result.samples * base_.targets;
  result.accuracy = main_->lowered().correct ? double(result.correct) / double(result.targets)
                                             : std::numeric_limits<double>::quiet_NaN();
  if (keeps_outputs() && shared_) share_outputs();
  if (source_->has_weights() && main_->lowered().correct) {
    result.accuracy = keeps_outputs()
                          ? accuracy_of(outputs_, source_->targets.span<const int32_t>(),
                                        source_->classes, source_->weights.span<const float>())
                          : std::numeric_limits<double>::quiet_NaN();
  }
  const bool values =
      source_->has_values() && base_.loss.kind != nn::LossKind::binary_cross_entropy;
  if (nn::gives_probabilities(model_.graph()) && !values) result.loss = loss_of_probabilities();
  if (keeps_outputs() && !model_.graph().heads().empty()) {
    result.heads = score_heads(model_, *source_, outputs_, units_);
  } else if (keeps_outputs()) {
    result.scores = score(*source_, outputs_, base_.loss.kind, units_);
  }
  result.seconds = clock.seconds();
  return result;
}

Evaluation evaluate_file(const std::filesystem::path& file, const std::string& data_name,
                         data::Part part, const std::filesystem::path& data_dir,
                         const ModelOptions& options, std::vector<std::string>& warnings,
                         Communicator* ranks, const std::string& target) {
  LoadedModel loaded = load_model(file, options);
  warnings = loaded.warnings;
  const std::string name = data_name.empty() ? loaded.config.data.name : data_name;
  if (!target.empty() && !loaded.preparation) {
    throw_error(ErrorKind::usage, "--target: only models of one's own data take a file of targets");
  }
  const data::SampleSet set =
      loaded.preparation
          ? load_own_part(loaded, data_name, target, part, data_dir)
          : load_stored_part(loaded.config, name, part, data_dir, loaded.classes, loaded.symbols);
  const Shape sample = resized_shape(set, loaded.config.data);
  if (sample.numel() != loaded.model.input().numel()) {
    throw_error(ErrorKind::usage, "{}: its samples are {} but the model {} takes {}", name,
                to_string(sample), file.string(), to_string(loaded.model.input()));
  }
  check_outputs(loaded.model, set, name, loaded.config.train.loss);
  if (ranks != nullptr && ranks->size() > 1) {
    check_same_settings(
        *ranks, fmt::format("precision = {}", ridgeline::name(loaded.config.run.precision)));
    check_same_model(*ranks, loaded.config, loaded.model);
    check_same_part(*ranks, set);
  }
  Machine machine(loaded.config.run, ranks);
  nn::LowerOptions lower = lower_options(loaded.config, loaded.scaling, set);
  lower.mode = nn::Mode::evaluate;
  const Weights weights(machine.runtime(), loaded.model, nn::lower(loaded.model, lower));
  const auto evaluate_whole = [&] {
    Evaluator evaluator(machine, loaded.config, loaded.model, set, loaded.scaling);
    evaluator.set_units(target_units(loaded.preparation ? &*loaded.preparation : nullptr, set));
    return evaluator.run(weights);
  };
  const Evaluation result = sample == set.sample_shape()
                                ? evaluate_whole()
                                : evaluate_resized(machine, loaded, set, sample, weights);
  if (!std::isfinite(result.loss)) {
    warnings.push_back(fmt::format("{}: its loss on {} is not finite; the weights are of no use",
                                   file.string(), name));
  }
  return result;
}

}  // namespace ridgeline::engine
