#pragma once

#include <filesystem>
#include <string>

#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// Loads the set that a config names: images, resized if it says so (once, when loaded, so that the
// rest of the program sees bytes), or a text as streams of its batch.
// `mapped`: the training inputs of a large file may stay in it (SampleSet::source).
data::DataSet load_data(const Config& config, const std::filesystem::path& data_dir,
                        bool mapped = false);

// Configs that load the same bytes have the same key.
std::string data_key(const Config& config);

// Loads one part of the set `name` for a model of this config; `symbols` are those of the text it
// was trained on, or empty.
data::SampleSet load_data_part(const Config& config, const std::string& name, data::Part part,
                               const std::filesystem::path& data_dir, int classes,
                               const std::string& symbols);
// Loads images as stored in their files, whatever size the config wants.
data::SampleSet load_stored_part(const Config& config, const std::string& name, data::Part part,
                                 const std::filesystem::path& data_dir, int classes,
                                 const std::string& symbols);

}  // namespace ridgeline::engine
