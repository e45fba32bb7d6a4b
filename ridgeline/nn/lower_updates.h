#pragma once

#include <map>
#include <string>
#include <vector>

#include "ridgeline/nn/builder.h"
#include "ridgeline/nn/layer.h"
#include "ridgeline/nn/lower.h"
#include "ridgeline/nn/model.h"

namespace ridgeline::nn {

// The ops of a training program after the gradients: their sums over ranks, their norm, and the
// optimizer's updates. `layers` has the gradients, `factors` the weights as ops read them.
class Updates {
 public:
  Updates(const Model& model, const LowerOptions& options, Lowered& lowered, Builder& builder,
          std::vector<LayerValues>& layers, const std::vector<Value>& factors)
      : model_(model),
        options_(options),
        lowered_(lowered),
        builder_(builder),
        layers_(layers),
        factors_(factors) {}

  Value add_state(const std::string& name, DType dtype, const Shape& shape, double start = 0);

  // Starts the sum of a layer's gradients over all ranks. The updates wait until the sums of the
  // layers below have started, so that their gradients hide this communication.
  void start_sum(size_t layer);
  void wait_for_sum(size_t layer);

  // Updates a layer's weights by its gradients; `grad_scale` may be absent.
  void update(size_t layer, const Value& grad_scale);
  // Clips or unscales all gradients, then updates all layers from the top down to `lowest`.
  void scale_and_update(size_t lowest);

 private:
  Value add_value(std::string name, DType dtype, const Shape& shape, Role role) {
    return lowered_.program.add_value(std::move(name), dtype, shape, role);
  }
  void add_update(const Value& w, const Value& dw, const Values& state, const Value& grad_scale,
                  const Value& copy);

  const Model& model_;
  const LowerOptions& options_;
  Lowered& lowered_;
  Builder& builder_;
  std::vector<LayerValues>& layers_;
  const std::vector<Value>& factors_;
  std::map<size_t, AllReduceWait> waits_;  // by layer
};

}  // namespace ridgeline::nn
