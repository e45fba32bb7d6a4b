#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ridgeline {

// The values of a batch in a layer: [samples, numbers of a sample] each.
struct LayerBatch {
  int64_t samples = 0;
  std::span<const float> x;
  std::vector<std::span<const float>> weights;
  std::span<float> y;  // forward writes it; backward may read it

  std::span<const float> dy;                   // backward
  std::span<float> dx;                         // to be written by backward; empty: not wanted
  std::vector<std::span<float>> weight_grads;  // to be written by backward
};

// A custom layer, computed on the CPU in fp32. One object serves every model with the layer,
// from several threads, so it must keep no state between calls.
class CustomLayer {
 public:
  struct Weight {
    std::string name;
    std::vector<int64_t> shape;
    double deviation = 0.0, mean = 0.0;  // of its initial normal distribution
  };

  virtual ~CustomLayer() = default;
  // Returns the output shape of one sample for an input shape. Throws Error if it does not
  // fit.
  virtual std::vector<int64_t> output_shape(const std::vector<int64_t>& input) const = 0;
  virtual std::vector<Weight> weights(const std::vector<int64_t>&) const { return {}; }
  virtual void forward(const LayerBatch& batch) const = 0;
  virtual void backward(const LayerBatch& batch) const = 0;
};

}  // namespace ridgeline
