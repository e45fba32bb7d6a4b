#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "ridgeline/core/text_format.h"
#include "ridgeline/data/prepare/preparation.h"
#include "ridgeline/data/prepare/refusals.h"
#include "ridgeline/data/prepare/training_blocks.h"

namespace ridgeline::data {
namespace {

NumberFeature fit_number(const Field& field, std::span<const int64_t> train,
                         const FeatureRule& rule) {
  NumberFeature feature;
  feature.field = field.name;
  feature.shape = field.shape;
  feature.boolean = field.kind == FieldKind::boolean;
  if (!feature.boolean) {
    feature.clip = rule.clip;
    feature.log = rule.log;
  }
  if (rule.clip && !(rule.clip->first <= rule.clip->second)) {
    throw_error(ErrorKind::usage, "field {}: clipped to {} and {}: the first must not be above",
                quote(field.name), rule.clip->first, rule.clip->second);
  }
  feature.missing = rule.missing;
  const auto elements = size_t(field.shape.numel());
  feature.shift.resize(elements);
  feature.scale.resize(elements);
  const NumberScale scale = feature.boolean ? NumberScale::none : rule.scale;
  const bool fills = rule.missing != MissingRule::refuse;
  // If nothing is scaled or filled in, nothing is fitted and the values are not even read. apply()
  // refuses invalid ones.
  if (scale == NumberScale::none && !fills) {
    set_scale(field, Moments(elements), scale, feature.shift, feature.scale);
    return feature;
  }
  const Moments raw = training_moments(field, train, !fills);
  const bool plain = (!feature.clip && !feature.log) || scale == NumberScale::none;
  const Transform transform = [&](double value) { return feature.transform(value); };
  set_scale(field, plain ? raw : training_moments(field, train, !fills, transform), scale,
            feature.shift, feature.scale);
  if (!fills) return feature;
  for (size_t e = 0; e < elements; ++e) {  // a missing value becomes the mean of the others
    if (raw.count(e) == 0) {
      throw_error(ErrorKind::data,
                  "{}: field {}: has no value in the training samples; leave it out", field.origin,
                  quote(field.name));
    }
    feature.fill.push_back(raw.mean(e));
  }
  return feature;
}

CategoryFeature fit_category(const Field& field, std::span<const int64_t> train,
                             const FeatureRule& rule) {
  CategoryFeature feature;
  feature.field = field.name;
  feature.coding = rule.coding;
  feature.missing = rule.missing;
  feature.unseen = rule.unseen;
  std::vector<double> counts(field.categories.size());
  double total = 0;
  training_blocks(field, train,
                  [&](std::span<const int64_t> samples, std::span<const double> codes) {
                    for (size_t i = 0; i < codes.size(); ++i) {
                      if (!std::isnan(codes[i])) {
                        counts[size_t(codes[i])] += 1;
                        total += 1;
                      } else if (rule.missing == MissingRule::refuse) {
                        refuse_missing(field, samples[i]);
                      }
                    }
                  });
  if (total == 0) {
    throw_error(ErrorKind::data, "{}: field {}: has no value in the training samples; leave it out",
                field.origin, quote(field.name));
  }
  const bool fills = rule.missing != MissingRule::refuse || rule.unseen == UnseenRule::missing;
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) continue;
    feature.categories.push_back(field.categories[c]);
    if (fills) feature.fill.push_back(counts[c] / total);
  }
  return feature;
}

bool is_image(const Field& field) {
  return field.kind == FieldKind::number && field.dtype == DType::uint8 && field.shape.rank() >= 2;
}

ImageFeature fit_image(const Field& field, std::span<const int64_t> train, ScaleKind scale) {
  ImageFeature feature;
  feature.field = field.name;
  feature.shape = field.shape;
  feature.options = folder_options(field.shape);
  if (scale != ScaleKind::standard) {
    feature.scaling = make_scaling(scale, {});
    return feature;
  }
  std::vector<uint8_t> bytes(train.size() * size_t(field.shape.numel()));
  gather(field, train, std::as_writable_bytes(std::span(bytes)));
  feature.scaling = make_scaling(scale, bytes);
  return feature;
}

// Returns the rows of a sequence, each as a sample of its own.
Field timesteps_of(const Field& field) {
  Field rows = field;
  rows.origin = fmt::format("{} (timesteps counted as samples)", field.origin);
  rows.kind = FieldKind::number;
  rows.samples = field.rows();
  if (!field.has_lengths()) rows.shape = {};  // tokens, which are not looked at
  rows.offsets = nullptr;
  return rows;
}

// Whether the first layer reads tokens and the samples are arrays of whole numbers.
bool is_tokens(const Field& field, const PrepareRules& rules) {
  return rules.tokens > 0 && field.kind == FieldKind::number && !is_float(field.dtype) &&
         field.shape.rank() == 1;
}

SequenceFeature fit_sequence(const Field& field, std::span<const int64_t> train,
                             const FeatureRule& rule, const PrepareRules& rules) {
  SequenceFeature feature;
  feature.timestep.field = field.name;
  // Padded arrays are sequences of one length.
  const bool padded = field.kind == FieldKind::number;
  std::vector<int64_t> even;
  for (int64_t i = 0; padded && i <= field.samples; ++i) even.push_back(i * field.shape[0]);
  const std::vector<int64_t>& offsets = padded ? even : *field.offsets;
  feature.timestep.shape = padded ? Shape{} : field.shape;
  // The room that is needed is no knowledge of the samples that are kept from training.
  for (size_t i = 0; i < size_t(field.samples); ++i) {
    feature.length = std::max(feature.length, offsets[i + 1] - offsets[i]);
  }
  feature.cut = rules.length.has_value();
  feature.length = std::max<int64_t>(1, rules.length.value_or(feature.length));
  feature.tokens = is_float(field.dtype) || feature.timestep.shape.rank() > 0 ? 0 : rules.tokens;
  if (feature.tokens == 0 && rules.tokens > 0) {
    throw_error(ErrorKind::usage,
                "{}: field {} holds {} a timestep, but the first layer of the model takes tokens, "
                "which are whole numbers; begin with another layer",
                field.origin, quote(field.name),
                field.shape.rank() > 0 ? to_string(field.shape) : std::string(name(field.dtype)));
  }
  std::vector<int64_t> rows;
  for (const int64_t sample : train) {
    const int64_t begin = offsets[size_t(sample)];
    const int64_t end = std::min(offsets[size_t(sample) + 1], begin + feature.length);
    for (int64_t row = begin; row < end; ++row) rows.push_back(row);
  }
  FeatureRule timestep = feature.tokens > 0 ? FeatureRule{.scale = NumberScale::none} : rule;
  if (rows.empty()) {
    throw_error(ErrorKind::data, "{}: field {}: has no timestep in the training samples",
                field.origin, quote(field.name));
  }
  feature.timestep = fit_number(timesteps_of(field), rows, timestep);
  return feature;
}

Feature fit_feature(const Field& field, std::span<const int64_t> train, const PrepareRules& rules) {
  const auto own = rules.fields.find(field.name);
  const FeatureRule& rule = own != rules.fields.end() ? own->second : rules.rule;
  if (is_image(field)) return fit_image(field, train, rules.image_scale);
  if (field.kind == FieldKind::category) return fit_category(field, train, rule);
  if (field.kind == FieldKind::sequence || is_tokens(field, rules)) {
    return fit_sequence(field, train, rule, rules);
  }
  return fit_number(field, train, rule);
}

void check_names(const FieldSet& set, const PrepareRules& rules) {
  std::set<std::string_view> targets(rules.target.begin(), rules.target.end());
  if (targets.size() != rules.target.size()) {
    throw_error(ErrorKind::usage, "{}: a field is named twice as the target", set.name());
  }
  if (targets.contains(rules.weight)) {
    throw_error(ErrorKind::usage, "{}: field {} is the target and the weight of a sample",
                set.name(), quote(rules.weight));
  }
  std::set<std::string_view> features;
  for (const std::string& name : rules.features) {
    (void)set.field(name);
    if (name == rules.weight) {
      throw_error(ErrorKind::usage, "{}: field {} is a feature and the weight of a sample",
                  set.name(), quote(name));
    }
    // The past of a time series may predict its future.
    const bool answer = targets.contains(name) && !rules.windows;
    if (answer || !features.insert(name).second) {
      throw_error(ErrorKind::usage, "{}: field {} is {}", set.name(), quote(name),
                  answer ? "a feature and the target, which would tell the answer" : "named twice");
    }
  }
  for (const auto& [name, rule] : rules.fields) (void)set.field(name);
}

// Whether, if no features are named, a sequence is the only feature.
bool only_sequence(const FieldSet& set, const PrepareRules& rules) {
  int64_t sequences = 0, others = 0;
  for (const Field& field : set.fields()) {
    if (std::ranges::find(rules.target, field.name) != rules.target.end()) continue;
    if (field.name == rules.weight) continue;
    sequences += field.kind == FieldKind::sequence;
    others += field.kind != FieldKind::sequence && field.kind != FieldKind::text;
  }
  return rules.features.empty() && sequences == 1 && others == 0;
}

}  // namespace

Preparation Preparation::fit(const FieldSet& set, std::span<const int64_t> train,
                             const PrepareRules& rules) {
  if (train.empty()) throw_error(ErrorKind::data, "{}: no samples to learn from", set.name());
  check_names(set, rules);
  if (rules.windows) check_windows(*rules.windows);
  Preparation result;
  result.windows_ = rules.windows;
  for (const Field& field : set.fields()) {
    const bool named = std::ranges::find(rules.features, field.name) != rules.features.end();
    const bool target = std::ranges::find(rules.target, field.name) != rules.target.end();
    if ((target && !rules.windows) || (!rules.features.empty() && !named)) continue;
    if (field.name == rules.weight) continue;
    const bool text = field.kind == FieldKind::text;
    if (text || (field.kind == FieldKind::sequence && !named && !only_sequence(set, rules))) {
      if (named) {
        throw_error(ErrorKind::usage, "{}: field {} holds {}s, which are no features", field.origin,
                    quote(field.name), name(field.kind));
      }
      result.left_out_.push_back(field.name);
      continue;
    }
    result.features_.push_back(fit_feature(field, train, rules));
  }
  if (result.features_.empty()) {
    throw_error(ErrorKind::data, "{}: no field is left to learn from", set.name());
  }
  const bool image = std::ranges::any_of(result.features_, [](const Feature& feature) {
    return std::holds_alternative<ImageFeature>(feature);
  });
  const bool sequence = std::ranges::any_of(result.features_, [](const Feature& feature) {
    return std::holds_alternative<SequenceFeature>(feature);
  });
  if (sequence && rules.windows) {
    throw_error(ErrorKind::usage,
                "{}: a window is cut from rows, and each of these samples is a sequence already; "
                "leave data.window out",
                set.name());
  }
  if ((image || sequence) && result.features_.size() > 1) {
    throw_error(ErrorKind::usage,
                "{}: {} and other fields cannot be one input; name the features to use", set.name(),
                image ? "images" : "sequences");
  }
  if (!rules.target.empty()) result.target_ = fit_target(set, train, rules);
  return result;
}

}  // namespace ridgeline::data
