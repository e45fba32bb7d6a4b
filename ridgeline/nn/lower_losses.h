#pragma once

#include <vector>

#include "ridgeline/nn/builder.h"
#include "ridgeline/nn/loss_ops.h"

namespace ridgeline::nn {

// The losses of a program: that of the net's output, or one per head. The targets of the batch are
// [batch * targets] int32 classes, or values [batch, columns].
class Losses {
 public:
  Losses(const Model& model, const LowerOptions& options, Lowered& lowered, Builder& builder)
      : model_(model), options_(options), lowered_(lowered), builder_(builder) {}

  // Gathers the targets of the batch, and in training the weights of its samples.
  void gather();
  // Adds the loss of `x` [n, outputs], the last layer's output; or the losses of the heads.
  void add(const Value& x, int last_layer);
  void add_heads(const std::vector<LayerValues>& layers);

  size_t size() const { return criteria_.size(); }
  int layer(size_t loss) const { return criteria_[loss].layer; }  // whose output the loss is of
  Value add_gradient(size_t loss);

 private:
  struct Criterion {
    Loss loss;  // as this program computes it
    LossOperands operands;
    int layer;
  };

  Value add_value(std::string name, DType dtype, const Shape& shape, Role role, int64_t below = 1) {
    return lowered_.program.add_value(std::move(name), dtype, shape, role, below);
  }
  bool has_values() const { return is_float(options_.set_targets); }
  const std::vector<Head>& heads() const { return model_.graph().heads(); }
  int64_t samples() const {
    return options_.global_batch > 0 ? options_.global_batch : options_.batch;
  }
  void add_one(const Loss& given, int layer, const Value& x, const Value& target, double scale,
               const std::string& constants, const Value& result, const Value& correct);
  void gather_weights();
  Value weighted(const Value& dx);
  Value head_target(const Head& head, int64_t begin, int64_t columns);

  const Model& model_;
  const LowerOptions& options_;
  Lowered& lowered_;
  Builder& builder_;
  Value target_;
  Value weight_;  // [batch, 1], if samples have weights
  std::vector<Criterion> criteria_;
};

}  // namespace ridgeline::nn
