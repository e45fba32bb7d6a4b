#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ridgeline::data {

// The rule by which the samples of a set are split.
struct SplitRule {
  double validation = 0, test = 0;  // fractions of all samples; the rest is for training
  uint64_t seed = 1;
  bool stratify = false;  // every class is split by these fractions
  // The first samples are for training, the last for testing, so that a model is tested on later
  // data than it was trained on; the seed does not matter.
  bool in_order = false;
};

// Numbers of samples, each list ascending. Every sample is in one of them.
struct Split {
  std::vector<int64_t> train, validation, test;
};

// The result is the same for the same n, rule and classes, on every machine and for any number of
// threads. A part with a fraction above 0 has at least one sample. `classes` are those of the
// samples, for stratify; a class of few samples goes to training first. Throws Error(usage) if a
// fraction is not in [0, 1), or nothing is left for training.
Split split_samples(int64_t n, const SplitRule& rule, std::span<const int32_t> classes = {});

}  // namespace ridgeline::data
