#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/prepare/rules.h"
#include "ridgeline/data/summary.h"

namespace ridgeline::data {

std::string_view name(TargetKind kind);

// The classes of a field, by their names, or, where they are numbers in the data, by their numbers
// as text.
struct FieldClasses {
  std::vector<std::string> names{};  // none: the field holds numbers to learn as they are
  bool numbered = false;             // the classes are numbers in the data, ascending

  bool operator==(const FieldClasses&) const = default;
};

// What a model learns to say.
struct Target {
  TargetKind kind = TargetKind::values;
  std::vector<std::string> fields;  // several: values, or one-hot rows of those that have classes
  Shape shape;                      // of a sample of values or labels
  // Classes by their names, or, where they are numbers in the data, by their numbers as text.
  std::vector<std::string> classes{};
  bool numbered = false;                      // the classes are numbers in the data, ascending
  std::vector<double> shift{}, scale{};       // values: y = (x - shift) * scale, one an element
  std::vector<FieldClasses> field_classes{};  // of several fields, one each; none: none has classes

  int64_t outputs() const {
    return kind == TargetKind::classes ? int64_t(classes.size()) : shape.numel();
  }
  // The class of each sample. Throws data with the sample for a missing one, and for one that is
  // none of the classes.
  void apply_classes(const FieldSet& set, int64_t begin, int64_t end, std::span<int32_t> out) const;
  // Labels and scaled values, outputs() a sample. Throws data for a missing or infinite one, and
  // for a label that is neither 0 nor 1.
  void apply_values(const FieldSet& set, int64_t begin, int64_t end, std::span<double> out) const;
  // What a model's outputs, a whole number of samples, mean in the units of the data. `each`: so
  // many neighbours, such as quantiles, stand for one value.
  void restore(std::span<double> values, int64_t each = 1) const;

  bool operator==(const Target&) const = default;
};

// What a field is when it is the target: words are classes, and so are whole numbers of few values
// (at most 20, or 0 to n - 1 up to a thousand, each twice on average); bytes of 0 and 1, several a
// sample, are labels; anything else is values. Throws data for texts and sequences.
TargetKind guess_target(const Field& field, const FieldSummary& summary);

// The field that is the target unless another is named: one that is called target, label, class or
// y, or else, of a table, the last column. Nothing: there is only one field, or none stands out.
std::optional<std::string> default_target(const FieldSet& set, bool table);

// Learns the target from the training samples. Throws data when one of them has none.
Target fit_target(const FieldSet& set, std::span<const int64_t> train, const PrepareRules& rules);

}  // namespace ridgeline::data
