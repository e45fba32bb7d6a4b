#pragma once

#include "ridgeline/data/sample_set.h"

namespace ridgeline::data {

// fp32 inputs in a caller's host or GPU memory, which the caller keeps as long as the set is used.
// A run on the same device reads them in place.
class InputsInPlace final : public InputSource {
 public:
  explicit InputsInPlace(const Tensor& all) : all_(all), shape_(all.shape.drop_front()) {}

  const Tensor& all() const { return all_; }
  DType dtype() const override { return all_.dtype; }
  const Shape& sample_shape() const override { return shape_; }
  // Copies samples in host memory. Those in GPU memory stay there and zeros are returned instead,
  // so that a hash of the set covers its targets and shapes.
  void gather(std::span<const int32_t> samples, std::span<std::byte> out) const override;

 private:
  Tensor all_;
  Shape shape_;
};

// Returns the inputs of a set on this device; null if it has none, or elsewhere.
const Tensor* inputs_on(const SampleSet& set, const Device& device);

}  // namespace ridgeline::data
