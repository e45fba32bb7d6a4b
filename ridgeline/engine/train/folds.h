#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ridgeline/engine/train/train.h"

namespace ridgeline::engine {

// k-fold cross-validation: divides the training samples into k parts of about equal size, with
// about equal shares of each class; one model per part is trained on the others and validated on
// it.
struct FoldsReport {
  std::vector<TrainReport> folds;  // the completed ones
  int stopped_by = 0;              // a signal's number; 0: ran to its end
};

// Returns the fold of each sample. It is the same for the same n, seed and classes (none: any).
std::vector<int> assign_folds(int64_t n, int folds, uint64_t seed,
                              std::span<const int32_t> classes);

// Returns the folder of a fold, counted from 0, in that of the whole run.
std::filesystem::path fold_folder(const std::filesystem::path& out, int fold);

// Trains one fold after the other, each in its own folder. With options.resume, folds that have
// begun are continued and the others begin. Throws like train(), and Error(usage) if the set
// already has a validation part or has fewer samples than folds.
FoldsReport train_folds(const Config& config, const TrainOptions& options, int folds);

nlohmann::json to_json(const FoldsReport& report);
std::string summary(const FoldsReport& report);  // mean and deviation of each metric

}  // namespace ridgeline::engine
