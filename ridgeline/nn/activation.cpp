#include "ridgeline/nn/activation.h"

#include <fmt/format.h>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {
namespace {

constexpr double kMostParameter = 1e6;  // far above any use

const char* parameter_key(ActivationKind kind) {
  return kind == ActivationKind::elu ? "alpha" : "slope";
}

}  // namespace

Value ActivationLayer::forward(Builder& builder, LayerValues& values) const {
  const Value y = builder.like(fmt::format("x{}", values.layer + 1), values.x);
  builder.add(Activation{kind_, values.x, y, parameter_});
  return y;
}

Value ActivationLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                                bool needs_dx) const {
  if (!needs_dx) return {};
  const Value dx = builder.like(fmt::format("dx{}", values.layer), values.x);
  builder.add(ActivationGrad{kind_, saves_output(kind_) ? values.y : values.x, dy, dx, parameter_});
  return dx;
}

double ActivationLayer::read_parameter(ActivationKind kind, ConfigTable& table) {
  if (!has_parameter(kind)) return 0;
  return table.number(parameter_key(kind), standard_parameter(kind), {0.0, kMostParameter});
}

std::string ActivationLayer::to_toml() const {
  if (!has_parameter(kind_)) return fmt::format("{{ type = \"{}\" }}", type());
  return fmt::format("{{ type = \"{}\", {} = {} }}", type(), parameter_key(kind_),
                     toml_number(parameter_));
}

}  // namespace ridgeline::nn
