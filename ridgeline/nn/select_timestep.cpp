#include "ridgeline/nn/select_timestep.h"

#include <fmt/format.h>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {

LayerPtr SelectTimestepLayer::read(ConfigTable& table) {
  constexpr int64_t kMost = int64_t{1} << 31;
  return std::make_shared<SelectTimestepLayer>(table.integer("at", -1, {-kMost, kMost}));
}

Shape SelectTimestepLayer::output(const Shape& input) const {
  if (input.rank() != 2) throw_error(ErrorKind::usage, "wants a sequence [steps, features]");
  if (at_ >= input[0] || at_ < -input[0]) {
    throw_error(ErrorKind::usage, "there is no step {} in {}; at lies in [{}, {}]", at_, input[0],
                -input[0], input[0] - 1);
  }
  return {input[1]};
}

Value SelectTimestepLayer::forward(Builder& builder, LayerValues& values) const {
  const int64_t n = values.x.shape[0], steps = values.input[0], features = values.input[1];
  const Value y = builder.temp(fmt::format("x{}", values.layer + 1), {n, features});
  Value x = values.x;
  x.shape = {n, steps, features};
  builder.add(SelectTimestep{steps, at_, x, builder.lengths(), y});
  return y;
}

Value SelectTimestepLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                                    bool needs_dx) const {
  if (!needs_dx) return {};
  const Value dx = builder.like(fmt::format("dx{}", values.layer), values.x);
  Value steps = dx;
  steps.shape = {values.x.shape[0], values.input[0], values.input[1]};
  builder.add(SelectTimestepGrad{values.input[0], at_, dy, builder.lengths(), steps});
  return dx;
}

std::string SelectTimestepLayer::to_toml() const {
  return fmt::format("{{ type = \"select\", at = {} }}", at_);
}

}  // namespace ridgeline::nn
