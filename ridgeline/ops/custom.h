#pragma once

#include <memory>
#include <string>

#include "ridgeline/custom_layer.h"
#include "ridgeline/ops/value.h"

namespace ridgeline {

// Ops of a custom layer, defined outside the library. Its work is unknown, so costs count only its
// memory traffic.

// y = layer(x, weights)
struct Custom {
  std::shared_ptr<const CustomLayer> layer;
  std::string type;  // as in the config
  Value x;           // [n, features]
  Values weights;
  Value y;  // [n, features]

  static constexpr const char* kName = "custom";
  Values reads() const {
    Values values{x};
    values.insert(values.end(), weights.begin(), weights.end());
    return values;
  }
  Values writes() const { return {y}; }
  std::string attributes() const { return "type=" + type; }
  double flops() const { return 0; }
  double bytes() const {
    double sum = size_of(x) + size_of(y);
    for (const Value& weight : weights) sum += size_of(weight);
    return sum;
  }
};

// dx, weight_grads = the gradients of the layer for dy
struct CustomGrad {
  std::shared_ptr<const CustomLayer> layer;
  std::string type;
  Value x, y, dy;
  Values weights;
  Value dx;  // optional
  Values weight_grads;

  static constexpr const char* kName = "custom_grad";
  Values reads() const {
    Values values{x, y, dy};
    values.insert(values.end(), weights.begin(), weights.end());
    return values;
  }
  Values writes() const {
    Values values{dx};
    values.insert(values.end(), weight_grads.begin(), weight_grads.end());
    return values;
  }
  std::string attributes() const { return "type=" + type; }
  double flops() const { return 0; }
  double bytes() const {
    double sum = size_of(x) + size_of(y) + size_of(dy) + (dx ? size_of(dx) : 0);
    for (const Value& weight : weights) sum += 2 * size_of(weight);
    return sum;
  }
};

}  // namespace ridgeline
