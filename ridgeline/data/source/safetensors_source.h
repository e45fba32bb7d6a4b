#pragma once

#include <filesystem>
#include <vector>

#include "ridgeline/data/field_set.h"

namespace ridgeline::data {

// Reads the tensors of a safetensors file, one field each, in the order of their names; the first
// axis is that of the samples. Only the header is read now. Throws Error(data) for a header that
// does not match the file, offsets that leave a hole or overlap, an unknown dtype, and a tensor
// without axes.
std::vector<Field> read_safetensors(const std::filesystem::path& path);

}  // namespace ridgeline::data
