#pragma once

#include "ridgeline/data/sample_set.h"

namespace ridgeline::data {

// fp32 inputs that a caller has in host memory or in that of a GPU, and keeps for as long as the
// set is used. A run on the device that has them reads them there.
class InputsInPlace final : public InputSource {
 public:
  explicit InputsInPlace(const Tensor& all) : all_(all), shape_(all.shape.drop_front()) {}

  const Tensor& all() const { return all_; }
  DType dtype() const override { return all_.dtype; }
  const Shape& sample_shape() const override { return shape_; }
  // Copies samples in host memory. Those of a GPU stay there: zeros are given in their place, so
  // that a hash of the set is one of its targets and shapes.
  void gather(std::span<const int32_t> samples, std::span<std::byte> out) const override;

 private:
  Tensor all_;
  Shape shape_;
};

// The inputs of a set that lie on this device; null: it has none, or elsewhere.
const Tensor* inputs_on(const SampleSet& set, const Device& device);

}  // namespace ridgeline::data
