#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/prepare/preparation.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// A person's own data as they are in their files: the parts that a config names or that a file
// holds, before any are split off and before anything is learnt from them.
struct OwnSources {
  struct Train {
    data::FieldSet set;  // its fields include the target
    std::vector<std::string> target;
    bool table = false;
  };
  Train train;
  std::optional<data::FieldSet> validation{}, test{};
  bool all_train = false;  // nothing is set aside to test on
};

// Opens what config.data.own names.
OwnSources open_sources(const Config& config);

// Finds the target of a set: the given fields, or the one array of a file, which joins the set.
// None given: as data::default_target says; of texts, none. `dtype` is that of a file of nothing
// but numbers, one a sample; empty: the file says what it is. Throws with the fields there are.
std::vector<std::string> join_target(data::FieldSet& set, const std::vector<std::string>& target,
                                     bool table, const std::string& dtype = {});

// Makes the field `lengths` of the set, or the one array of that file, the lengths of the samples
// of another: of `name`, or, where that is empty, of the one field of arrays that is no target.
// That field becomes a sequence. Throws usage, with the fields, where that is none or not clear.
data::FieldSet join_lengths(const data::FieldSet& set, const std::string& lengths,
                            const std::string& name, const std::vector<std::string>& target);

// The fields of a file or folder as a model with this preparation knows them: read as its training
// data were, and, where the model has one input field, under that field's name.
data::FieldSet open_prepared(const std::filesystem::path& path,
                             const data::Preparation& preparation, const Config& config);

// The set with the field `from` under the name `to`.
data::FieldSet renamed(const data::FieldSet& set, const std::string& from, const std::string& to);

}  // namespace ridgeline::engine
