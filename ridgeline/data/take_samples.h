#pragma once

#include <cstdint>
#include <span>

#include "ridgeline/data/sample_set.h"
#include "ridgeline/data/split.h"

namespace ridgeline::data {

// The samples of these numbers, in this order, as a set of their own.
SampleSet take_samples(const SampleSet& set, std::span<const int64_t> samples);

// Moves a part of the training samples to `validation`. Throws usage for the text of a language
// model, whose samples follow one another, and as split_samples().
void cut_validation(DataSet& set, const SplitRule& rule);

}  // namespace ridgeline::data
