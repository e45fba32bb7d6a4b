#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/data/prepare/preparation.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// Finds the target of a set: the given fields, or the one array of a file, which joins the set.
// None given: as data::default_target says; of texts, none. Throws with the fields there are.
std::vector<std::string> join_target(data::FieldSet& set, const std::vector<std::string>& target,
                                     bool table);

// Opens the data that config.data.own names, shares its samples out, learns from those to train on
// how fields become inputs and targets, and prepares all parts. Pixels alone stay bytes; everything
// else becomes fp32. `known` is used in the place of what would be learnt.
data::DataSet load_own_data(const Config& config, const data::Preparation* known = nullptr);

// Prepares fields in memory by the rules of config.data.own, whose file names are not looked at.
// `target` are fields of `train`; the other parts have the same fields. Where there is no `test`, a
// part of `train` is taken, unless `all_train`: then there is nothing to test on. `known` is used
// in the place of what would be learnt.
struct OwnParts {
  data::FieldSet train;
  std::vector<std::string> target;
  std::optional<data::FieldSet> validation{}, test{};
  bool all_train = false;
};
data::DataSet prepare_own_data(const Config& config, OwnParts parts,
                               const data::Preparation* known = nullptr);

// All samples of a set with their targets, prepared.
data::SampleSet prepare_samples(const data::FieldSet& set, const data::Preparation& preparation,
                                std::string name);

// The fields of a file or folder as a model with this preparation knows them: read as its training
// data were, and, where the model has one input field, under that field's name.
data::FieldSet open_prepared(const std::filesystem::path& path,
                             const data::Preparation& preparation, const Config& config);

// All samples of a file with their targets, prepared; `target` is a file that holds these, or
// empty.
data::SampleSet load_prepared(const std::filesystem::path& path, const std::string& target,
                              const data::Preparation& preparation, const Config& config);

// The samples of a set that a model sees: one a sample, or one a window of timesteps. Targets are
// not looked at.
int64_t prepared_samples(const data::FieldSet& set, const data::Preparation& preparation);
// Appends the inputs of the samples [begin, end) in the type that a model takes: bytes or fp32.
void append_inputs(const data::FieldSet& set, const data::Preparation& preparation, int64_t begin,
                   int64_t end, std::vector<uint8_t>& out);

// The type of the inputs that a model with this preparation takes.
DType input_dtype(const data::Preparation& preparation);

// The config with what only the data could say: the loss, where none is named.
Config settled(Config config, const data::DataSet& set);

}  // namespace ridgeline::engine
