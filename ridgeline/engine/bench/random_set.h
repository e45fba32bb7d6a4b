#pragma once

#include <memory>

#include "ridgeline/data/sample_set.h"

namespace ridgeline::engine {

// Random bytes, all below `below`, with random labels, the same every time: what speed is measured
// on.
std::shared_ptr<const data::DataSet> random_data(int64_t samples, const Shape& sample, int classes,
                                                 int below = 256);

}  // namespace ridgeline::engine
