#pragma once

#include <filesystem>
#include <string>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/source/array_file.h"

namespace ridgeline::data {

// An IDX file of any type and rank, plain or gzip. Of a plain file only the header is read now.
// Throws data as read_idx does.
Field read_idx_field(const std::filesystem::path& path, std::string name);

// A file of nothing but numbers, plain or gzip: samples of `sample` elements of `type`, one after
// another. Throws data when its size is no whole number of samples.
Field read_raw_field(const std::filesystem::path& path, std::string name, const StoredType& type,
                     const Shape& sample);

}  // namespace ridgeline::data
