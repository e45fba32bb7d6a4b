#include "ridgeline/data/inputs_in_place.h"

#include <algorithm>
#include <cstring>

namespace ridgeline::data {

void InputsInPlace::gather(std::span<const int32_t> samples, std::span<std::byte> out) const {
  if (!all_.device.is_host()) {
    std::ranges::fill(out, std::byte{0});
    return;
  }
  const size_t each = size_t(shape_.numel()) * size_of(all_.dtype);
  for (size_t i = 0; i < samples.size(); ++i) {
    std::memcpy(out.data() + i * each, all_.as<const std::byte>() + size_t(samples[i]) * each,
                each);
  }
}

const Tensor* inputs_on(const SampleSet& set, const Device& device) {
  const auto* in_place = dynamic_cast<const InputsInPlace*>(set.source.get());
  return in_place != nullptr && in_place->all().device == device ? &in_place->all() : nullptr;
}

}  // namespace ridgeline::data
