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

// The classes of a field, by their names or, if they are numbers in the data, by their numbers as
// text.
struct FieldClasses {
  std::vector<std::string> names{};  // empty: the field holds numbers to learn directly
  bool numbered = false;             // the classes are numbers in the data, ascending

  bool operator==(const FieldClasses&) const = default;
};

// The target that a model learns.
struct Target {
  TargetKind kind = TargetKind::values;
  std::vector<std::string> fields;  // several: values, or one-hot rows for those with classes
  Shape shape;                      // of a sample of values or labels
  // Classes by their names or, if they are numbers in the data, by their numbers as text.
  std::vector<std::string> classes{};
  bool numbered = false;                      // the classes are numbers in the data, ascending
  std::vector<double> shift{}, scale{};       // values: y = (x - shift) * scale, one per element
  std::vector<FieldClasses> field_classes{};  // one per field; empty: none has classes

  int64_t outputs() const {
    return kind == TargetKind::classes ? int64_t(classes.size()) : shape.numel();
  }
  // Returns the class of each sample. Throws Error(data) with the sample for a missing or unknown
  // one.
  void apply_classes(const FieldSet& set, int64_t begin, int64_t end, std::span<int32_t> out) const;
  // Returns labels or scaled values, outputs() per sample. Throws Error(data) for a missing or
  // infinite one, and for a label that is neither 0 nor 1.
  void apply_values(const FieldSet& set, int64_t begin, int64_t end, std::span<double> out) const;
  // Converts a model's outputs, of whole samples, to the units of the data. `each` neighbours, such
  // as quantiles, belong to one value.
  void restore(std::span<double> values, int64_t each = 1) const;

  bool operator==(const Target&) const = default;
};

// Detects the kind of target: words are classes, and so are integers of few values (at most 20, or
// 0 to n - 1 up to a thousand, each twice on average); several numbers of 0 and 1 per sample are
// labels; anything else is values. Throws Error(data) for texts and sequences.
TargetKind guess_target(const Field& field, const FieldSummary& summary);

// Returns the default target: a field called target, label, class or y, or else the last column of
// a table. Nothing if there is only one field, or no such field.
std::optional<std::string> default_target(const FieldSet& set, bool table);

// Fits the target to the training samples. Throws Error(data) if one of them has none.
Target fit_target(const FieldSet& set, std::span<const int64_t> train, const PrepareRules& rules);

}  // namespace ridgeline::data
