#include "ridgeline/engine/user_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ridgeline/core/text_format.h"
#include "ridgeline/data/inputs_in_place.h"
#include "ridgeline/data/split.h"
#include "ridgeline/engine/known_fields.h"

namespace ridgeline::engine {
namespace {

namespace fs = std::filesystem;
using data::FieldSet;
using data::Preparation;
using data::SampleSet;

constexpr double kUsualTestPart = 0.1;  // if the config names neither a test set nor a split

HostTensor make_targets(const FieldSet& set, const data::Target& target,
                        std::span<const int64_t> samples) {
  const auto count = int64_t(samples.size());
  if (target.kind == data::TargetKind::classes) {
    HostTensor targets(DType::int32, {count});
    prepare_selected<int32_t>(samples, 1, targets.span<int32_t>().data(),
                              [&](int64_t begin, int64_t end, std::span<int32_t> out) {
                                target.apply_classes(set, begin, end, out);
                              });
    return targets;
  }
  const int64_t outputs = target.outputs();
  HostTensor targets(DType::fp32, {count, outputs});
  std::vector<double> values;
  prepare_selected<float>(samples, outputs, targets.span<float>().data(),
                          [&](int64_t begin, int64_t end, std::span<float> out) {
                            values.resize(out.size());
                            target.apply_values(set, begin, end, values);
                            std::ranges::transform(values, out.begin(),
                                                   [](double value) { return float(value); });
                          });
  return targets;
}

// Returns how much each of these samples counts, 1 on average.
HostTensor make_weights(const FieldSet& set, const std::string& name,
                        std::span<const int64_t> samples) {
  const data::Field& field = set.field(name);
  const bool numbers =
      field.kind == data::FieldKind::number || field.kind == data::FieldKind::boolean;
  if (!numbers || field.shape.numel() != 1) {
    throw_error(ErrorKind::usage, "{}: data.weight: field {} holds no single number per sample",
                set.name(), quote(name));
  }
  std::vector<double> weights(samples.size());
  prepare_selected<double>(samples, 1, weights.data(),
                           [&](int64_t begin, int64_t end, std::span<double> out) {
                             read_doubles(field, begin, end, out);
                           });
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0 && std::isfinite(weights[i]))) {
      throw_error(ErrorKind::data,
                  "{}: data.weight: the weight {} of sample {} is {}; a weight is a number of at "
                  "least 0",
                  set.name(), quote(name), samples[i],
                  std::isnan(weights[i]) ? "missing" : fmt::format("{}", weights[i]));
    }
    sum += weights[i];
  }
  if (!(sum > 0 && std::isfinite(sum))) {
    throw_error(ErrorKind::data,
                "{}: data.weight: the weights {} of the training samples sum to {}", set.name(),
                quote(name), sum);
  }
  HostTensor result(DType::fp32, {int64_t(samples.size()), 1});
  const double mean = sum / double(samples.size());
  std::ranges::transform(weights, result.span<float>().begin(),
                         [&](double weight) { return float(weight / mean); });
  return result;
}

using SharedPreparation = std::shared_ptr<const Preparation>;

// `samples` are the windows' first timesteps if the preparation makes windows. Inputs of at least
// `least_mapped` bytes stay in their file, or their categories stay codes, if they can. `weight`
// names the field with the samples' weights; empty: they count alike.
SampleSet make_samples(const FieldSet& set, const SharedPreparation& prepared,
                       std::span<const int64_t> samples, std::string name,
                       std::optional<int64_t> least_mapped = std::nullopt,
                       const std::string& weight = {}) {
  const Preparation& preparation = *prepared;
  if (!preparation.target()) {
    throw_error(ErrorKind::usage, "{}: the model's data had no target, so nothing can be compared",
                set.name());
  }
  const data::Target& target = *preparation.target();
  SampleSet result;
  const int64_t bytes = int64_t(samples.size()) * preparation.input_shape().numel() *
                        int64_t(size_of(input_dtype(preparation)));
  if (least_mapped && bytes >= *least_mapped) {
    result.source = mapped_inputs(set, prepared, samples);
    if (!result.source) result.source = coded_inputs(set, prepared, samples);
  }
  if (!result.source) result.inputs = make_inputs(set, preparation, samples);
  result.lengths = make_lengths(set, preparation, samples);
  std::vector<int64_t> later;  // of windows: the timesteps that they predict
  std::span<const int64_t> at = samples;
  if (const auto& rule = preparation.windows()) {
    for (const int64_t start : samples) later.push_back(data::target_of(start, *rule));
    at = later;
  }
  result.targets = make_targets(set, target, at);
  if (!weight.empty()) result.weights = make_weights(set, weight, at);
  result.classes = target.kind == data::TargetKind::classes ? int(target.outputs()) : 0;
  result.name = std::move(name);
  result.hash = hash_of(result);
  return result;
}

std::vector<int64_t> all_of(int64_t count) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Returns the beginnings of the windows that lie within one part of the timesteps. A window holds
// only consecutive timesteps. `name` is for errors.
std::vector<int64_t> starts_of(const std::vector<int64_t>& part, const data::WindowRule& windows,
                               const std::string& name) {
  if (part.empty()) return {};
  std::vector<int64_t> starts;
  Range longest{0, 0};
  for (size_t at = 0; at < part.size();) {
    size_t end = at + 1;
    while (end < part.size() && part[end] == part[end - 1] + 1) ++end;
    const Range run{part[at], part[end - 1] + 1};
    if (run.end - run.begin > longest.end - longest.begin) longest = run;
    if (run.end - run.begin >= windows.span()) {
      for (const int64_t start : data::window_starts(run, windows)) starts.push_back(start);
    }
    at = end;
  }
  return starts.empty() ? data::window_starts(longest, windows, name) : starts;  // throws
}

// Returns the targets of a net's heads, field by field.
std::vector<data::TargetKind> kinds_of(const std::vector<nn::Head>& heads) {
  std::vector<data::TargetKind> kinds;
  for (const nn::Head& head : heads) {
    const bool labels = head.loss.kind == nn::LossKind::binary_cross_entropy;
    kinds.push_back(nn::wants_labels(head.loss.kind) ? data::TargetKind::classes
                    : labels                         ? data::TargetKind::labels
                                                     : data::TargetKind::values);
  }
  return kinds;
}

// Returns the rules of the config, completed from the data and the layers.
data::PrepareRules rules_of(const Config& config, const UserSources& sources) {
  data::PrepareRules rules = config.data.user->rules();
  rules.target = sources.train.target;
  rules.weight = sources.train.weight;
  // A loss that the config names decides; that of labels sets their kind.
  rules.detect_labels = !config.train.loss_named;
  if (!config.layers.empty()) rules.tokens = config.layers[0]->codes_below();
  const std::vector<nn::Head>& heads = config.layers.heads();
  if (heads.empty()) return rules;
  rules.target_kind = data::TargetKind::values;
  // One field may hold the targets of all heads side by side, classes as one-hot rows.
  if (rules.target.size() == heads.size()) {
    rules.target_kinds = kinds_of(heads);
  } else {
    rules.target_scale = data::NumberScale::none;
  }
  return rules;
}

// Splits the samples, and records in `rules` the kind of target that was found.
data::Split split_user_data(const UserSources& sources, const UserDataConfig& user,
                            data::PrepareRules& rules) {
  data::SplitRule rule;
  rule.validation = sources.validation ? 0 : user.validation_part;
  const bool takes_test = !sources.test && !sources.all_train;
  rule.test = takes_test ? user.test_part.value_or(kUsualTestPart) : 0;
  rule.seed = user.split_seed;
  rule.in_order = user.windows.has_value();
  const FieldSet& set = sources.train.set;
  if (rule.test == 0 && takes_test) {
    throw_error(ErrorKind::usage,
                "{}: there is nothing to test on: name data.test, or a part by data.split",
                set.name());
  }
  if (rule.in_order && user.stratify == true) {
    throw_error(
        ErrorKind::usage,
        "data.split.stratify: the parts of a series follow one another, so they cannot have "
        "the same share of each class");
  }
  std::vector<int32_t> classes;
  if (!rule.in_order && user.stratify.value_or(true) && rule.validation + rule.test > 0) {
    data::PrepareRules unscaled = rules;  // the scale is learnt from the training part only
    unscaled.target_scale = data::NumberScale::none;
    const data::Target target = fit_target(set, {}, unscaled);
    rules.target_kind = target.kind;
    if (target.kind == data::TargetKind::classes) {
      rule.stratify = true;
      classes.resize(size_t(set.size()));
      target.apply_classes(set, 0, set.size(), classes);
    } else if (user.stratify == true) {
      throw_error(ErrorKind::usage, "data.split.stratify: the target is {}, not classes",
                  data::name(target.kind));
    }
  }
  return split_samples(set.size(), rule, classes);
}

// Fits the preparation to split.train and prepares all parts.
data::DataSet prepare_split(const UserDataConfig& user, const UserSources& sources,
                            const data::PrepareRules& rules, const data::Split& split,
                            const Preparation* known,
                            std::optional<int64_t> least_mapped = std::nullopt) {
  const FieldSet& set = sources.train.set;
  const auto preparation = std::make_shared<const Preparation>(
      known != nullptr ? *known : Preparation::fit(set, split.train, rules));
  data::DataSet result;
  const auto make = [&](const FieldSet& from, const std::vector<int64_t>& part, const char* what,
                        std::optional<int64_t> least = std::nullopt,
                        const std::string& weight = {}) {
    const std::string name = fmt::format("{} ({})", user.train, what);
    if (!preparation->windows()) return make_samples(from, preparation, part, name, least, weight);
    const std::vector<int64_t> starts = starts_of(part, *preparation->windows(), name);
    return make_samples(from, preparation, starts, name, least, weight);
  };
  // Pixels that are scaled by their overall mean must be in memory.
  const bool whole =
      user.scale == data::ScaleKind::standard && input_dtype(*preparation) == DType::uint8;
  result.train =
      make(set, split.train, "train", whole ? std::nullopt : least_mapped, sources.train.weight);
  if (sources.test) {
    result.test = make(*sources.test, all_of(sources.test->size()), "test");
  } else if (!sources.all_train) {
    result.test = make(set, split.test, "test");
  }
  if (!split.validation.empty()) {
    result.validation = make(set, split.validation, "validation");
  } else if (sources.validation) {
    result.validation = make(*sources.validation, all_of(sources.validation->size()), "validation");
  }
  result.preparation = preparation;
  result.without_target = sources.without_target;
  return result;
}

data::DataSet prepare(const Config& config, const UserSources& sources, const Preparation* known,
                      std::optional<int64_t> least_mapped = std::nullopt) {
  const UserDataConfig& user = *config.data.user;
  data::PrepareRules rules = rules_of(config, sources);
  const data::Split split = split_user_data(sources, user, rules);
  return prepare_split(user, sources, rules, split, known, least_mapped);
}

}  // namespace

data::DataSet load_user_data(const Config& config, const Preparation* known, bool mapped) {
  // Images that are shifted or mirrored must be in memory.
  const bool plain = config.data.shift == 0 && !config.data.flip;
  // A smaller set is prepared in advance: that takes a few tenths of a second, and on a CPU a step
  // is then up to a fifth faster.
  constexpr int64_t kLarge = int64_t{512} << 20;
  std::optional<int64_t> least_mapped;
  if (mapped && plain) least_mapped = config.data.resident == false ? 0 : kLarge;
  return prepare(config, open_sources(config), known, least_mapped);
}

UserFolds::UserFolds(const Config& config)
    : own_(*config.data.user), sources_(open_sources(config)) {
  if (sources_.validation || own_.validation_part > 0) {
    throw_error(ErrorKind::usage,
                "--folds: every fold is validated on its own part; leave the validation part of "
                "data out");
  }
  // Every sample may be in a fold: nothing is chosen by the results.
  if (!sources_.test && own_.test_part == 0.0) sources_.all_train = true;
  rules_ = rules_of(config, sources_);
  split_ = split_user_data(sources_, own_, rules_);
  const FieldSet& set = sources_.train.set;
  const data::Target target = fit_target(set, split_.train, rules_);
  if (target.kind != data::TargetKind::classes || own_.windows) return;
  classes_.resize(split_.train.size());
  prepare_selected<int32_t>(split_.train, 1, classes_.data(),
                            [&](int64_t begin, int64_t end, std::span<int32_t> out) {
                              target.apply_classes(set, begin, end, out);
                            });
}

data::DataSet UserFolds::make(std::span<const int> fold_of, int fold) const {
  data::Split split;
  split.test = split_.test;
  for (size_t i = 0; i < fold_of.size(); ++i) {
    (fold_of[i] == fold ? split.validation : split.train).push_back(split_.train[i]);
  }
  return prepare_split(own_, sources_, rules_, split, nullptr);
}

data::DataSet prepare_own_data(const Config& config, UserParts parts, const Preparation* known) {
  UserSources sources{.train = {.set = std::move(parts.train),
                                .target = std::move(parts.target),
                                .weight = config.data.user->weight}};
  sources.validation = std::move(parts.validation);
  sources.test = std::move(parts.test);
  sources.all_train = parts.all_train;
  return prepare(config, sources, known);
}

SampleSet prepare_samples(const FieldSet& set, const Preparation& preparation, std::string name) {
  const std::vector<int64_t> all = all_of(set.size());
  const auto& windows = preparation.windows();
  return make_samples(set, std::make_shared<const Preparation>(preparation),
                      windows ? starts_of(all, *windows, name) : all, name);
}

SampleSet prepare_in_place(const Tensor& inputs, const FieldSet& targets,
                           const Preparation& preparation, std::string name) {
  const data::Target& target = *preparation.target();
  SampleSet result;
  result.source = std::make_shared<const data::InputsInPlace>(inputs);
  result.targets = make_targets(targets, target, all_of(inputs.shape[0]));
  result.classes = target.kind == data::TargetKind::classes ? int(target.outputs()) : 0;
  result.name = std::move(name);
  result.hash = hash_of(result);
  return result;
}

bool leaves_unchanged(const Preparation& preparation) {
  if (preparation.features().size() != 1 || preparation.windows() || !preparation.target()) {
    return false;
  }
  const auto* number = std::get_if<data::NumberFeature>(&preparation.features().front());
  return number != nullptr && !number->boolean && !number->clip && !number->log &&
         number->missing == data::MissingRule::refuse &&
         std::ranges::all_of(preparation.target()->shift,
                             [](double shift) { return shift == 0; }) &&
         std::ranges::all_of(preparation.target()->scale,
                             [](double scale) { return scale == 1; }) &&
         std::ranges::all_of(number->shift, [](double shift) { return shift == 0; }) &&
         std::ranges::all_of(number->scale, [](double scale) { return scale == 1; });
}

SampleSet load_prepared(const fs::path& path, const std::string& target,
                        const Preparation& preparation, const Config& config) {
  FieldSet set = open_prepared_beside(path, preparation, config, target);
  if (!target.empty() && preparation.target()) {
    const std::string joined =
        join_target(set, {target}, false, config.data.user->target_dtype).front();
    const std::string& wanted = preparation.target()->fields.front();
    if (joined != wanted) set = renamed(set, joined, wanted);
  }
  if (config.data.user && config.data.user->drop_missing_target && preparation.target()) {
    drop_missing_target(set, preparation.target()->fields);
  }
  return prepare_samples(set, preparation, path.string());
}

}  // namespace ridgeline::engine
