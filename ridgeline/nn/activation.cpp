#include "ridgeline/nn/activation.h"

#include <fmt/format.h>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {

Value ActivationLayer::forward(Builder& builder, LayerValues& values) const {
  const Value y = builder.like(fmt::format("x{}", values.layer + 1), values.x);
  builder.add(Activation{kind_, values.x, y});
  return y;
}

Value ActivationLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                                bool needs_dx) const {
  if (!needs_dx) return {};
  const Value dx = builder.like(fmt::format("dx{}", values.layer), values.x);
  builder.add(ActivationGrad{kind_, saves_output(kind_) ? values.y : values.x, dy, dx});
  return dx;
}

std::string ActivationLayer::to_toml() const { return fmt::format("{{ type = \"{}\" }}", type()); }

}  // namespace ridgeline::nn
