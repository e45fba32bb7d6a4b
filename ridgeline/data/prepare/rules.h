#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/data/prepare/windows.h"
#include "ridgeline/data/scaling.h"

namespace ridgeline::data {

// What a person asks for; a Preparation is what is learnt by it.

enum class NumberScale {
  none,
  standardise,  // mean 0 and deviation 1 in training; a constant becomes 0
  min_max,      // 0 to 1 in training; a constant becomes 0
};

enum class MissingRule {
  refuse,
  mean,       // the mean in training; of categories, their frequencies
  indicator,  // the same, and a feature more that is 1 where the value was missing
};

// A category that did not occur in training.
enum class UnseenRule {
  refuse,
  missing,  // as a missing value, by its rule
};

enum class CategoryCoding {
  one_hot,
  codes,  // whole numbers, for an embedding that is learnt; one more stands for a missing value
};

// Numbers are clipped first, then the logarithm is taken, then they are scaled.
struct FeatureRule {
  NumberScale scale = NumberScale::standardise;
  bool log = false;  // sign(x) * log(1 + |x|), which every number has
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
  std::map<std::string, FeatureRule> fields{};  // of these instead
  std::vector<std::string> features{};          // none: all fields but the target and texts
  std::vector<std::string> target{};            // none: there is none
  // Of several fields one each: classes become one-hot rows, and labels are not scaled. None: all
  // are of the kind below.
  std::vector<TargetKind> target_kinds{};
  std::optional<TargetKind> target_kind{};       // none: found from the field
  NumberScale target_scale = NumberScale::none;  // of values
  ScaleKind image_scale = ScaleKind::unit;
  // Of sequences: the whole numbers in them are codes below this, for an embedding; 0: numbers.
  int64_t tokens = 0;
  std::optional<int64_t> length{};  // longer sequences are cut to it; none: as long as they are
  std::optional<WindowRule> windows{};
};

}  // namespace ridgeline::data
