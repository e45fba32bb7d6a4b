#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/prepare/preparation.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// A user's own data as in the files: the parts that a config names or that a file holds, before the
// split and before any preparation.
struct UserSources {
  struct Train {
    data::FieldSet set;  // its fields include the target
    std::vector<std::string> target;
    std::string weight{};  // the field with the weights of the samples; empty: all count alike
    bool table = false;
  };
  Train train;
  std::optional<data::FieldSet> validation{}, test{};
  bool all_train = false;      // no test part is split off
  int64_t without_target = 0;  // samples that were left out because they have no target
};

// Opens the files that config.data.user names.
UserSources open_sources(const Config& config);

// Leaves out the samples of which a target is missing, and returns how many these are. Throws
// Error(data) if none is left.
int64_t drop_missing_target(data::FieldSet& set, const std::vector<std::string>& target);

// Finds the target of a set: the given fields, or the one array of a file, which joins the set. If
// none is given: as data::default_target says; for texts, none. `dtype` is that of a raw file, one
// number per sample; empty: the file describes itself. Throws with the names of the fields.
std::vector<std::string> join_target(data::FieldSet& set, const std::vector<std::string>& target,
                                     bool table, const std::string& dtype = {});

// Makes the field `lengths` of the set, or the one array of that file, the lengths of another
// field: of `name`, or, if that is empty, of the only array field that is not a target. That field
// becomes a sequence. Throws Error(usage), with the fields, if there is none or several.
data::FieldSet join_lengths(const data::FieldSet& set, const std::string& lengths,
                            const std::string& name, const std::vector<std::string>& target);

// Opens the fields of a file or folder for a model with this preparation: read like its training
// data, and, if the model has one input field, under that field's name.
data::FieldSet open_prepared(const std::filesystem::path& path,
                             const data::Preparation& preparation, const Config& config);

// Returns the set with the field `from` renamed to `to`.
data::FieldSet renamed(const data::FieldSet& set, const std::string& from, const std::string& to);

}  // namespace ridgeline::engine
