#pragma once

#include <cstdint>
#include <span>

#include "ridgeline/data/sample_set.h"
#include "ridgeline/data/split.h"

namespace ridgeline::data {

// Returns the samples with these numbers, in this order, as a set.
SampleSet take_samples(const SampleSet& set, std::span<const int64_t> samples);

// Moves a part of the training samples to `validation`. Throws Error(usage) for the text of a
// language model, whose samples are consecutive, and like split_samples().
void cut_validation(DataSet& set, const SplitRule& rule);

}  // namespace ridgeline::data
