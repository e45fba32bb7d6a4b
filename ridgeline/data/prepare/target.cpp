#include "ridgeline/data/prepare/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/prepare/feature.h"
#include "ridgeline/data/prepare/training_blocks.h"

namespace ridgeline::data {
namespace {

constexpr size_t kFewClasses = 20;

[[noreturn]] void refuse(const Field& field, int64_t sample, std::string_view what,
                         std::string_view remedy = "mend the sample or leave it out") {
  throw_error(ErrorKind::data, "{}: the target {} of sample {} {}; {}", field.origin,
              quote(field.name), sample, what, remedy);
}

[[noreturn]] void refuse_absent(const Field& field, int64_t sample) {
  refuse(field, sample, "is missing",
         "fill it in, or leave out all samples without one: data.missing_target = \"drop\"");
}

bool is_words(const Field& field) {
  return field.kind == FieldKind::category || field.kind == FieldKind::boolean;
}

double number_of(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::vector<std::string> numbered_classes(const Field& field, const FieldSummary& summary) {
  std::vector<std::string> classes;
  for (const auto& [value, count] : summary.values) classes.push_back(std::to_string(value));
  if (classes.empty()) {
    throw_error(ErrorKind::usage,
                "{}: the target {} is no class: it has values that are not whole, or more than {} "
                "of them; learn it as values",
                field.origin, quote(field.name), FieldSummary::kMostDistinct);
  }
  return classes;
}

// Names the first sample without a target; the field holds one value per sample.
void refuse_missing(const Field& field) {
  training_blocks(field, {}, [&](std::span<const int64_t> samples, std::span<const double> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) refuse_absent(field, samples[i]);
      if (std::isinf(values[i])) refuse(field, samples[i], "is infinite");
    }
  });
}

}  // namespace

std::string_view name(TargetKind kind) {
  constexpr std::array<std::string_view, 3> kNames{"classes", "labels", "values"};
  return kNames[size_t(kind)];
}

TargetKind guess_target(const Field& field, const FieldSummary& summary) {
  if (is_words(field)) return TargetKind::classes;
  if (field.kind != FieldKind::number) {
    throw_error(ErrorKind::data, "{}: {} holds {}s, which no model here learns as a target",
                field.origin, quote(field.name), name(field.kind));
  }
  const size_t distinct = summary.values.size();
  const bool counted = distinct > 0 && summary.values.begin()->first == 0 &&
                       summary.values.rbegin()->first == int64_t(distinct) - 1 &&
                       int64_t(2 * distinct) <= field.samples;
  if (distinct > 0 && (distinct <= kFewClasses || counted)) return TargetKind::classes;
  const bool bits =
      field.shape.numel() > 1 && summary.whole && summary.least >= 0 && summary.most == 1;
  return bits ? TargetKind::labels : TargetKind::values;
}

std::optional<std::string> default_target(const FieldSet& set, bool table) {
  if (set.fields().size() < 2) return std::nullopt;
  for (const std::string_view name :
       {"target", "targets", "label", "labels", "class", "classes", "y"}) {
    if (set.find(name) != nullptr) return std::string(name);
  }
  if (table) return set.fields().back().name;
  return std::nullopt;
}

namespace {

// Targets of a later set may have any shape, but the memory for them has the model's.
void check_numbers(const Field& field, bool fits, int64_t wanted) {
  if (fits) return;
  throw_error(ErrorKind::data, "{}: {} holds {} a sample, but the model has {}", field.origin,
              quote(field.name), counted(field.shape.numel(), "target"), wanted);
}

// Returns the class of each sample [begin, end) of a field.
void classify(const Field& field, const std::vector<std::string>& classes, bool numbered,
              int64_t begin, int64_t end, std::span<int32_t> out) {
  if (!numbered) {
    const std::vector<int32_t> codes = codes_by_name(field, begin, end, classes);
    for (size_t i = 0; i < codes.size(); ++i) {
      if (codes[i] == kMissingCode) refuse_absent(field, begin + int64_t(i));
      if (codes[i] == kUnseenCode) {
        refuse(
            field, begin + int64_t(i),
            fmt::format("is none of the {}", counted(int64_t(classes.size()), "class", "classes")));
      }
      out[i] = codes[i];
    }
    return;
  }
  std::vector<double> known, values(out.size());
  for (const std::string& text : classes) known.push_back(number_of(text));
  read_doubles(field, begin, end, values);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) refuse_absent(field, begin + int64_t(i));
    const auto found = std::ranges::lower_bound(known, values[i]);
    if (found == known.end() || *found != values[i]) {
      refuse(field, begin + int64_t(i),
             fmt::format("is {}, none of the {} classes", values[i], known.size()));
    }
    out[i] = int32_t(found - known.begin());
  }
}

}  // namespace

void Target::apply_classes(const FieldSet& set, int64_t begin, int64_t end,
                           std::span<int32_t> out) const {
  const Field& field = set.field(fields.front());
  check_numbers(field, field.shape.numel() == 1, 1);
  classify(field, classes, numbered, begin, end, out);
}

void Target::apply_values(const FieldSet& set, int64_t begin, int64_t end,
                          std::span<double> out) const {
  const auto count = size_t(outputs());
  std::vector<double> values;
  size_t place = 0;
  for (size_t f = 0; f < fields.size(); ++f) {
    const Field& field = set.field(fields[f]);
    const bool one_hot = !field_classes.empty() && !field_classes[f].names.empty();
    if (one_hot) {
      const FieldClasses& known = field_classes[f];
      check_numbers(field, field.shape.numel() == 1, 1);
      std::vector<int32_t> codes(size_t(end - begin));
      classify(field, known.names, known.numbered, begin, end, codes);
      for (size_t i = 0; i < codes.size(); ++i) {
        for (size_t c = 0; c < known.names.size(); ++c) {
          out[i * count + place + c] = codes[i] == int32_t(c) ? 1 : 0;
        }
      }
      place += known.names.size();
      continue;
    }
    const auto elements = size_t(field.shape.numel());
    const bool last = f + 1 == fields.size();
    check_numbers(field, last ? place + elements == count : place + elements < count,
                  int64_t(count));
    values.resize(size_t(end - begin) * elements);
    read_doubles(field, begin, end, values);
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t sample = begin + int64_t(i / elements);
      const double value = values[i];
      if (std::isnan(value)) refuse_absent(field, sample);
      if (std::isinf(value)) refuse(field, sample, "is infinite");
      if (kind == TargetKind::labels && value != 0 && value != 1) {
        refuse(field, sample, fmt::format("holds {}; a label is 0 or 1", value));
      }
      const size_t element = place + i % elements;
      out[i / elements * count + element] = (value - shift[element]) * scale[element];
    }
    place += elements;
  }
}

void Target::restore(std::span<double> values, int64_t each) const {
  const auto count = size_t(outputs());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t at = i / size_t(each) % count;
    values[i] = values[i] / scale[at] + shift[at];
  }
}

namespace {

// Returns the classes of a field with one class per sample.
FieldClasses classes_of(const Field& field) {
  if (field.shape.numel() != 1) {
    throw_error(ErrorKind::usage, "{}: the classes {} are not one value a sample", field.origin,
                quote(field.name));
  }
  const FieldSummary summary = summarise(field);
  if (summary.missing + summary.infinite > 0) refuse_missing(field);
  if (is_words(field)) return {field.categories, false};
  return {numbered_classes(field, summary), true};
}

// Whether one of the first samples has a fraction, so that the field holds neither classes nor
// labels and need not be read to its end.
bool has_fractions(const Field& field) {
  if (field.kind != FieldKind::number || !is_float(field.dtype)) return false;
  constexpr int64_t kMostNumbers = 4096;
  const int64_t each = std::max<int64_t>(1, field.shape.numel());
  const int64_t samples = std::min(field.samples, std::max<int64_t>(1, kMostNumbers / each));
  std::vector<double> values(static_cast<size_t>(samples * each));
  read_doubles(field, 0, samples, values);
  return std::ranges::any_of(
      values, [](double value) { return std::isfinite(value) && value != std::floor(value); });
}

}  // namespace

Target fit_target(const FieldSet& set, std::span<const int64_t> train, const PrepareRules& rules) {
  Target target;
  target.fields = rules.target;
  const Field& first = set.field(rules.target.front());
  const bool several = rules.target.size() > 1;
  // Only classes, and detection, need all values.
  const bool known = rules.target_kind ? *rules.target_kind != TargetKind::classes : several;
  const bool values = !known && has_fractions(first);
  const FieldSummary summary = known || values ? FieldSummary() : summarise(first);
  target.kind = rules.target_kind   ? *rules.target_kind
                : several || values ? TargetKind::values
                                    : guess_target(first, summary);
  if (!rules.target_kind && !rules.detect_labels && target.kind == TargetKind::labels) {
    target.kind = TargetKind::values;
  }
  if (target.kind == TargetKind::classes) {
    if (several || first.shape.numel() != 1) {
      throw_error(ErrorKind::usage, "{}: classes are one field of one value a sample",
                  first.origin);
    }
    target.numbered = !is_words(first);
    if (summary.missing + summary.infinite > 0) refuse_missing(first);
    target.classes = target.numbered ? numbered_classes(first, summary) : first.categories;
    return target;
  }
  int64_t elements = 0;
  const auto is_kind = [&](size_t field, TargetKind kind) {
    return field < rules.target_kinds.size() && rules.target_kinds[field] == kind;
  };
  if (std::ranges::count(rules.target_kinds, TargetKind::classes) > 0) {
    target.field_classes.resize(rules.target.size());
  }
  for (size_t i = 0; i < rules.target.size(); ++i) {
    const std::string& name = rules.target[i];
    const Field& field = set.field(name);
    if (is_kind(i, TargetKind::classes)) {
      target.field_classes[i] = classes_of(field);
      elements += int64_t(target.field_classes[i].names.size());
      continue;
    }
    if (field.kind != FieldKind::number && field.kind != FieldKind::boolean) {
      throw_error(
          ErrorKind::usage, "{}: the target {} holds {}, and no {}", field.origin, quote(name),
          field.kind == FieldKind::category ? "words" : fmt::format("{}s", data::name(field.kind)),
          data::name(target.kind));
    }
    elements += field.shape.numel();
  }
  target.shape = several || !target.field_classes.empty() ? Shape{elements} : first.shape;
  target.shift.assign(size_t(elements), 0);
  target.scale.assign(size_t(elements), 1);
  size_t place = 0;
  for (size_t i = 0; i < rules.target.size(); ++i) {
    const Field& field = set.field(rules.target[i]);
    if (!target.field_classes.empty() && !target.field_classes[i].names.empty()) {
      place += target.field_classes[i].names.size();
      continue;
    }
    const NumberScale scale = target.kind == TargetKind::values && !is_kind(i, TargetKind::labels)
                                  ? rules.target_scale
                                  : NumberScale::none;
    const auto count = size_t(field.shape.numel());
    // Values that are not scaled are not read here: apply_values() refuses invalid ones.
    const Moments moments =
        scale == NumberScale::none ? Moments(count) : training_moments(field, train, false);
    set_scale(field, moments, scale, std::span(target.shift).subspan(place, count),
              std::span(target.scale).subspan(place, count));
    place += count;
  }
  return target;
}

}  // namespace ridgeline::data
