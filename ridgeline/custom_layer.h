#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ridgeline {

// A batch on its way through a layer: [samples, numbers of a sample] each.
struct LayerBatch {
  int64_t samples = 0;
  std::span<const float> x;
  std::vector<std::span<const float>> weights;
  std::span<float> y;  // forward writes it; backward may read it

  std::span<const float> dy;                   // backward
  std::span<float> dx;                         // to be written by backward; empty: not wanted
  std::vector<std::span<float>> weight_grads;  // to be written by backward
};

// A layer from outside the library, computed on the CPU in fp32. One object serves every model
// that has the layer, from several threads: it keeps no state between calls.
class CustomLayer {
 public:
  struct Weight {
    std::string name;
    std::vector<int64_t> shape;
    double deviation = 0.0, mean = 0.0;  // of the normal distribution that it starts with
  };

  virtual ~CustomLayer() = default;
  // The shape of one sample that leaves for the shape that enters. Throws Error when they do not
  // fit.
  virtual std::vector<int64_t> output_shape(const std::vector<int64_t>& input) const = 0;
  virtual std::vector<Weight> weights(const std::vector<int64_t>&) const { return {}; }
  virtual void forward(const LayerBatch& batch) const = 0;
  virtual void backward(const LayerBatch& batch) const = 0;
};

}  // namespace ridgeline
