#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridgeline/data/field_set.h"

namespace ridgeline::data {

// Returns the samples with these numbers, which ascend. Values are read when they are needed.
FieldSet select_samples(const FieldSet& set, std::vector<int64_t> samples);

// Returns the numbers of the samples in which no element of these fields, which have no lengths, is
// missing.
std::vector<int64_t> samples_with_all(const FieldSet& set, const std::vector<std::string>& fields);

}  // namespace ridgeline::data
