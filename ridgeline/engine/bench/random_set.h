#pragma once

#include <memory>

#include "ridgeline/data/sample_set.h"

namespace ridgeline::engine {

// Makes random bytes below `below` with random labels, always the same, on which speed is
// measured.
std::shared_ptr<const data::DataSet> random_data(int64_t samples, const Shape& sample, int classes,
                                                 int below = 256);

}  // namespace ridgeline::engine
