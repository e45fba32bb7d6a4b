#include "ridgeline/data/take_samples.h"

#include <cstring>

#include "ridgeline/core/error.h"

namespace ridgeline::data {
namespace {

HostTensor take(const HostTensor& from, std::span<const int64_t> samples) {
  const Tensor& all = from.view();
  HostTensor taken(all.dtype, all.shape.with(0, int64_t(samples.size())));
  const size_t bytes = all.bytes() / size_t(all.shape[0]);
  const auto* source = static_cast<const std::byte*>(all.data);
  auto* target = static_cast<std::byte*>(taken.view().data);
  for (const int64_t sample : samples) {
    std::memcpy(target, source + size_t(sample) * bytes, bytes);
    target += bytes;
  }
  return taken;
}

}  // namespace

SampleSet take_samples(const SampleSet& set, std::span<const int64_t> samples) {
  SampleSet part;
  part.inputs = take(set.inputs, samples);
  part.targets = take(set.targets, samples);
  if (set.has_weights()) part.weights = take(set.weights, samples);
  part.classes = set.classes;
  part.streams = set.streams;
  part.symbols = set.symbols;
  part.codes = set.codes;
  part.name = set.name;
  part.hash = hash_of(part);
  return part;
}

void cut_validation(DataSet& set, const SplitRule& rule) {
  if (rule.validation <= 0) return;
  if (set.train.streams > 0) {
    throw_error(ErrorKind::usage,
                "data.split: {} is one text, whose parts follow one another; leave split out",
                set.train.name);
  }
  const bool classes = !set.train.has_values() && set.train.targets_per_sample() == 1;
  if (rule.stratify && !classes) {
    throw_error(ErrorKind::usage,
                "data.split: stratify is for samples of one class each, which those of {} are not",
                set.train.name);
  }
  const Split split = split_samples(
      set.train.size(), rule,
      rule.stratify ? set.train.targets.span<const int32_t>() : std::span<const int32_t>());
  set.validation = take_samples(set.train, split.validation);
  set.train = take_samples(set.train, split.train);
}

}  // namespace ridgeline::data
