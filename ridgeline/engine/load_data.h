#pragma once

#include <filesystem>

#include "ridgeline/data/image_set.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// The set that a config names, with its images resized where it says so: once, when loaded, so that
// all that follows sees bytes as it always does.
data::DataSet load_data(const DataConfig& config, const std::filesystem::path& data_dir);
data::ImageSet load_data(const DataConfig& config, data::Part part,
                         const std::filesystem::path& data_dir, int classes);

}  // namespace ridgeline::engine
