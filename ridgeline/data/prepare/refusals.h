#pragma once

#include "ridgeline/data/field_set.h"

namespace ridgeline::data {

// What preparation throws (Error data) for a value that no model can be given.
[[noreturn]] void refuse_missing(const Field& field, int64_t sample);
[[noreturn]] void refuse_infinite(const Field& field, int64_t sample);

}  // namespace ridgeline::data
