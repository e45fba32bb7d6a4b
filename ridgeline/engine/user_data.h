#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/data/prepare/preparation.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/data/split.h"
#include "ridgeline/engine/config.h"
#include "ridgeline/engine/prepared_inputs.h"
#include "ridgeline/engine/user_sources.h"

namespace ridgeline::engine {

// Opens the data that config.data.user names, splits the samples, fits the preparation of inputs
// and targets to the training part, and prepares all parts. Pixels alone stay bytes; everything
// else becomes fp32. `known` replaces the fitted preparation. `mapped`: the inputs of the training
// part may stay in a large file and are prepared when they are needed.
data::DataSet load_user_data(const Config& config, const data::Preparation* known = nullptr,
                             bool mapped = false);

// Loads such data for cross-validation. Each fold fits its preparation to its own training samples
// only.
class UserFolds {
 public:
  // Opens the data. Throws Error(usage) if it already has a validation part.
  explicit UserFolds(const Config& config);

  int64_t samples() const { return int64_t(split_.train.size()); }  // timesteps, of windows
  // The class of each sample; empty if the targets are not classes.
  std::span<const int32_t> classes() const { return classes_; }
  bool in_order() const { return own_.windows.has_value(); }
  // The samples i with fold_of[i] == fold are the validation part; the others are the training
  // part.
  data::DataSet make(std::span<const int> fold_of, int fold) const;

 private:
  UserDataConfig own_;
  UserSources sources_;
  data::PrepareRules rules_;
  data::Split split_;
  std::vector<int32_t> classes_;
};

// Prepares fields in memory by the rules of config.data.user, whose file names are ignored.
// `target` are fields of `train`; the other parts have the same fields. Without `test`, a part of
// `train` is taken, unless `all_train`: then there is no test part. `known` replaces the fitted
// preparation.
struct UserParts {
  data::FieldSet train;
  std::vector<std::string> target;
  std::optional<data::FieldSet> validation{}, test{};
  bool all_train = false;
};
data::DataSet prepare_own_data(const Config& config, UserParts parts,
                               const data::Preparation* known = nullptr);

// Prepares all samples of a set with their targets.
data::SampleSet prepare_samples(const data::FieldSet& set, const data::Preparation& preparation,
                                std::string name);

// Takes fp32 inputs in place from the caller's memory, on the host or on a GPU, with their targets.
// The preparation must leave inputs unchanged (leaves_unchanged).
data::SampleSet prepare_in_place(const Tensor& inputs, const data::FieldSet& targets,
                                 const data::Preparation& preparation, std::string name);
bool leaves_unchanged(const data::Preparation& preparation);

// Prepares all samples of a file with their targets; `target` is a file that holds these, or
// empty.
data::SampleSet load_prepared(const std::filesystem::path& path, const std::string& target,
                              const data::Preparation& preparation, const Config& config);

// Returns the config completed from the data: the loss and the batch, if none is named, and the
// columns of a column_embedding.
Config settled(Config config, const data::DataSet& set);

}  // namespace ridgeline::engine
