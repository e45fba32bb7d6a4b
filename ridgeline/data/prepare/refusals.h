#pragma once

#include "ridgeline/data/field_set.h"

namespace ridgeline::data {

// Errors (Error data) of preparation for invalid values.
[[noreturn]] void refuse_missing(const Field& field, int64_t sample);
[[noreturn]] void refuse_infinite(const Field& field, int64_t sample);
[[noreturn]] void refuse_too_large(const Field& field, int64_t sample);

}  // namespace ridgeline::data
