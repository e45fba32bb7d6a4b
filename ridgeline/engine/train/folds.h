#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ridgeline/engine/train/train.h"

namespace ridgeline::engine {

// k-fold cross-validation: the training samples in k parts of about equal size and, of classes, of
// about equal shares of each; a model for each part, trained on the others and validated on it.
struct FoldsReport {
  std::vector<TrainReport> folds;  // those that were made
  int stopped_by = 0;              // a signal's number; 0: ran to its end
};

// For each sample the fold it is in. The same for the same n, seed and classes (none: any).
std::vector<int> assign_folds(int64_t n, int folds, uint64_t seed,
                              std::span<const int32_t> classes);

// Trains in turn; what a fold keeps is in `out`/fold-1 and so on. Throws as train(), and usage when
// the set has a validation part already or fewer samples than folds.
FoldsReport train_folds(const Config& config, const TrainOptions& options, int folds);

nlohmann::json to_json(const FoldsReport& report);
std::string summary(const FoldsReport& report);  // mean and deviation of each metric, for people

}  // namespace ridgeline::engine
