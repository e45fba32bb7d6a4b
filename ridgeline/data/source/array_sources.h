#pragma once

#include <filesystem>
#include <string>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/source/array_file.h"

namespace ridgeline::data {

// Reads an IDX file of any type and rank, plain or gzip. Of a plain file only the header is read
// now. Throws Error(data) like read_idx.
Field read_idx_field(const std::filesystem::path& path, std::string name);

// Reads a raw file of numbers, plain or gzip: samples of `sample` elements of `type`, one after
// another. Throws Error(data) if its size is not a whole number of samples.
Field read_raw_field(const std::filesystem::path& path, std::string name, const StoredType& type,
                     const Shape& sample);

}  // namespace ridgeline::data
