#include "ridgeline/nn/dropout.h"

#include <fmt/format.h>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {
namespace {

Value append(Builder& builder, double p, int layer, const Value& x, std::string name) {
  const Value y = builder.like(std::move(name), x);
  const LowerOptions& options = builder.options();
  const DropoutMask mask{p, options.seed, uint32_t(layer), options.sample_offset};
  builder.add(Dropout{x, builder.step(), builder.tick(), y, mask});
  return y;
}

}  // namespace

LayerPtr DropoutLayer::read(ConfigTable& table) {
  return std::make_shared<DropoutLayer>(table.number("p", 0.5, {0.0, kBelowOne}));
}

Value DropoutLayer::forward(Builder& builder, LayerValues& values) const {
  if (!builder.training() || p_ == 0) return values.x;
  return append(builder, p_, values.layer, values.x, fmt::format("x{}", values.layer + 1));
}

Value DropoutLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                             bool needs_dx) const {
  if (!needs_dx || p_ == 0) return dy;
  return append(builder, p_, values.layer, dy, fmt::format("dx{}", values.layer));
}

std::string DropoutLayer::to_toml() const {
  return fmt::format("{{ type = \"dropout\", p = {} }}", toml_number(p_));
}

}  // namespace ridgeline::nn
