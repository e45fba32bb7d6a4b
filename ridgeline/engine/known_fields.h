#pragma once

#include <filesystem>
#include <string>

#include "ridgeline/data/field_set.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// Does what open_prepared() does for a set whose field `target` is no input: a model of one array
// of numbers takes a table of as many columns, the target apart, and finds its array among several
// by its shape.
data::FieldSet open_prepared_beside(const std::filesystem::path& path,
                                    const data::Preparation& preparation, const Config& config,
                                    const std::string& target);

}  // namespace ridgeline::engine
