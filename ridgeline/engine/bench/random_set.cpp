#include "ridgeline/engine/bench/random_set.h"

#include "ridgeline/core/philox.h"

namespace ridgeline::engine {
namespace {

data::SampleSet random_part(int64_t samples, const Shape& sample, int classes, int below,
                            uint64_t stream) {
  data::SampleSet set;
  set.inputs = HostTensor(DType::uint8, sample.prepend(samples));
  set.targets = HostTensor(DType::int32, {samples});
  set.classes = classes;
  set.name = "random";
  const Philox random{1, stream};
  auto words = set.inputs.span<uint8_t>();
  for (size_t i = 0; i < words.size(); ++i) words[i] = uint8_t(random.word(i) % uint32_t(below));
  auto labels = set.targets.span<int32_t>();
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = int32_t(random.below(uint64_t(classes), words.size() + i));
  }
  return set;
}

}  // namespace

std::shared_ptr<const data::DataSet> random_data(int64_t samples, const Shape& sample, int classes,
                                                 int below) {
  auto set = std::make_shared<data::DataSet>();
  set->train = random_part(samples, sample, classes, below, streams::kSample);
  set->test = random_part(256, sample, classes, below, streams::kSample + 1);
  return set;
}

}  // namespace ridgeline::engine
