#pragma once

#include <filesystem>
#include <vector>

#include "ridgeline/data/field_set.h"

namespace ridgeline::data {

// The tensors of a safetensors file, one field each, in the order of their names; the first axis is
// that of the samples. Only the header is read now. Throws data for a header that does not fit the
// file, offsets that leave a hole or overlap, a dtype that is not known, and a tensor without axes.
std::vector<Field> read_safetensors(const std::filesystem::path& path);

}  // namespace ridgeline::data
