#include "ridgeline/nn/unary.h"

#include <fmt/format.h>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {

Value UnaryLayer::forward(Builder& builder, LayerValues& values) const {
  const Value y = builder.like(fmt::format("x{}", values.layer + 1), values.x);
  builder.add(Unary{kind_, values.x, y});
  return y;
}

Value UnaryLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                           bool needs_dx) const {
  if (!needs_dx) return {};
  const Value dx = builder.like(fmt::format("dx{}", values.layer), values.x);
  builder.add(UnaryGrad{kind_, values.x, dy, dx});
  return dx;
}

}  // namespace ridgeline::nn
