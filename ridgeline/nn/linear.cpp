#include "ridgeline/nn/linear.h"

#include <fmt/format.h>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {

LayerPtr LinearLayer::read(ConfigTable& table) {
  constexpr int64_t kMostOutputs = int64_t{1} << 31;
  const int64_t out = table.integer("out", std::nullopt, {1, kMostOutputs});
  const bool bias = table.boolean("bias", true);
  const Init init = read_init(table, "init");
  if (!bias && table.has("bias_init")) table.fail("bias_init", "there is no bias to start");
  const bool per_step = table.boolean("per_step", false);
  return std::make_shared<LinearLayer>(out, bias, init, read_init(table, "bias_init"), per_step);
}

namespace {

Value as_rows(Value value, int64_t width) {
  value.shape = {value.shape.numel() / width, width};
  return value;
}

}  // namespace

Shape LinearLayer::output(const Shape& input) const {
  if (input.numel() < 1) {
    throw_error(ErrorKind::usage, "cannot give output {} from no values", to_string(Shape{out_}));
  }
  if (!per_step_) return {out_};
  if (input.rank() != 2) {
    throw_error(ErrorKind::usage, "per_step wants a sequence [steps, features]");
  }
  return {input[0], out_};
}

std::vector<ParamSpec> LinearLayer::params(const Shape& input) const {
  const int64_t in = per_step_ ? input[1] : input.numel();
  const Fans fans{in, out_};
  std::vector<ParamSpec> params{{"weight", {out_, in}, init_, fans}};
  if (bias_) params.push_back({"bias", {out_}, bias_init_, fans});
  return params;
}

Value LinearLayer::forward(Builder& builder, LayerValues& values) const {
  const int64_t steps = per_step_ ? values.input[0] : 1, in = values.params[0].shape[1];
  const Value y =
      builder.temp(fmt::format("x{}", values.layer + 1), {values.x.shape[0], steps * out_});
  builder.add(Linear{as_rows(values.x, in), values.params[0], bias_ ? values.params[1] : Value{},
                     as_rows(y, out_)});
  return y;
}

Value LinearLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                            bool needs_dx) const {
  const int64_t in = values.params[0].shape[1];
  Value dx;
  if (needs_dx) {
    dx = builder.like(fmt::format("dx{}", values.layer), values.x);
    builder.add(LinearGradX{as_rows(dy, out_), values.params[0], as_rows(dx, in)});
  }
  builder.add(LinearGradW{as_rows(values.x, in), as_rows(dy, out_), values.grads[0],
                          bias_ ? values.grads[1] : Value{}});
  return dx;
}

std::string LinearLayer::to_toml() const {
  std::string text = fmt::format("{{ type = \"linear\", out = {}, bias = {}, init = {}", out_,
                                 bias_, nn::to_toml(init_));
  if (bias_) text += fmt::format(", bias_init = {}", nn::to_toml(bias_init_));
  if (per_step_) text += ", per_step = true";
  return text + " }";
}

}  // namespace ridgeline::nn
