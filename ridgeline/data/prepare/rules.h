#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/data/prepare/windows.h"
#include "ridgeline/data/scaling.h"

namespace ridgeline::data {

// The user's rules, by which a Preparation is fitted.

enum class NumberScale {
  none,
  standardise,  // mean 0 and deviation 1 in training; a constant becomes 0
  min_max,      // 0 to 1 in training; a constant becomes 0
};

enum class MissingRule {
  refuse,
  mean,       // the training mean; for categories, their frequencies
  indicator,  // also adds a feature that is 1 if the value was missing
};

// A category that did not occur in training.
enum class UnseenRule {
  refuse,
  missing,  // treated as a missing value
};

enum class CategoryCoding {
  one_hot,
  codes,  // integers, for a learnt embedding; one more stands for a missing value
};

// Numbers are clipped first, then the logarithm is taken, then they are scaled.
struct FeatureRule {
  NumberScale scale = NumberScale::standardise;
  bool log = false;  // sign(x) * log(1 + |x|), which is defined for every number
  std::optional<std::pair<double, double>> clip{};
  MissingRule missing = MissingRule::refuse;
  UnseenRule unseen = UnseenRule::refuse;
  CategoryCoding coding = CategoryCoding::one_hot;
};

enum class TargetKind {
  classes,  // one of several
  labels,   // any of several: 0 or 1 each
  values,   // numbers
};

struct PrepareRules {
  FeatureRule rule{};                           // of every feature
  std::map<std::string, FeatureRule> fields{};  // exceptions for these fields
  std::vector<std::string> features{};          // empty: all fields but the target and texts
  std::vector<std::string> target{};            // empty: no target
  std::string weight{};  // the field with the weights of the samples, which is no feature
  // One per field if there are several: classes become one-hot rows, and labels are not scaled.
  // Empty: all are of the kind below.
  std::vector<TargetKind> target_kinds{};
  std::optional<TargetKind> target_kind{};       // unset: detected from the field
  bool detect_labels = true;                     // otherwise detected labels are values
  NumberScale target_scale = NumberScale::none;  // of values
  ScaleKind image_scale = ScaleKind::unit;
  // For sequences: integers are codes below this, for an embedding; 0: numbers.
  int64_t tokens = 0;
  std::optional<int64_t> length{};  // longer sequences are truncated; unset: the longest length
  std::optional<WindowRule> windows{};
};

}  // namespace ridgeline::data
