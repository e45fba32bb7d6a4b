#include "ridgeline/nn/norm.h"

#include <fmt/format.h>

#include "ridgeline/nn/builder.h"
#include "ridgeline/nn/norm_shape.h"

namespace ridgeline::nn {
namespace {

const Init kOnes{InitKind::ones};
const Init kZeros{InitKind::zeros};

// Returns why a rank has a single sample of a batch, and what to do about it.
std::string single_sample_remedy(const LowerOptions& options) {
  if (options.global_batch > 1) {
    return fmt::format(
        "a batch of {} leaves this one of {} ranks a single sample; use a train.batch of {} or "
        "more, fewer ranks, or train.drop_last when it is the last batch that is so small",
        options.global_batch, options.ranks, 2 * options.ranks);
  }
  return "a batch has a single sample; use a train.batch of two or more, or train.drop_last when "
         "it is the last batch that has one";
}

Image channels_of(const Shape& input) { return {input[0], 1, input.numel() / input[0]}; }

// Sets the operands that the gradients of both normalisations share.
template <typename Grad>
Grad gradient(Builder& builder, const LayerValues& values, const Value& dy, bool affine,
              bool needs_dx) {
  Grad op;
  op.x = values.x;
  op.mean = values.saved[0];
  op.rstd = values.saved[1];
  op.dy = dy;
  if (affine) {
    op.gamma = values.params[0];
    op.dgamma = values.grads[0];
    op.dbeta = values.grads[1];
  }
  if (needs_dx) op.dx = builder.like(fmt::format("dx{}", values.layer), values.x);
  return op;
}

}  // namespace

LayerPtr LayerNormLayer::read(ConfigTable& table) {
  const int64_t dims = table.integer("dims", 0, {0, Shape::kMaxRank});
  const double epsilon = read_norm_epsilon(table);
  return std::make_shared<LayerNormLayer>(dims, epsilon, table.boolean("affine", true));
}

Shape LayerNormLayer::normalised(const Shape& input) const { return last_dims(input, dims_); }

Shape LayerNormLayer::output(const Shape& input) const {
  normalised(input);
  return input;
}

std::vector<ParamSpec> LayerNormLayer::params(const Shape& input) const {
  if (!affine_) return {};
  const Shape shape = normalised(input);
  return {{"weight", shape, kOnes, {}}, {"bias", shape, kZeros, {}}};
}

Value LayerNormLayer::forward(Builder& builder, LayerValues& values) const {
  const int64_t width = normalised(values.input).numel();
  const int64_t rows = values.x.shape.numel() / width;
  LayerNorm op;
  op.x = values.x;
  if (affine_) {
    op.gamma = values.params[0];
    op.beta = values.params[1];
  }
  op.y = builder.like(fmt::format("x{}", values.layer + 1), values.x);
  if (builder.training()) {
    op.mean = norm_statistic(builder, "mean", values.layer, rows);
    op.rstd = norm_statistic(builder, "rstd", values.layer, rows);
    values.saved = {op.mean, op.rstd};
  }
  op.width = width;
  op.epsilon = epsilon_;
  builder.add(op);
  return op.y;
}

Value LayerNormLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                               bool needs_dx) const {
  auto op = gradient<LayerNormGrad>(builder, values, dy, affine_, needs_dx);
  op.width = normalised(values.input).numel();
  if (needs_dx || affine_) builder.add(op);
  return op.dx;
}

std::string LayerNormLayer::to_toml() const {
  return fmt::format("{{ type = \"layernorm\", dims = {}, eps = {}, affine = {} }}", dims_,
                     toml_number(epsilon_), affine_);
}

LayerPtr BatchNormLayer::read(ConfigTable& table) {
  const double epsilon = read_norm_epsilon(table);
  const double momentum = table.number("momentum", 0.1, {0.0, 1.0});
  return std::make_shared<BatchNormLayer>(epsilon, momentum, table.boolean("affine", true));
}

Shape BatchNormLayer::output(const Shape& input) const {
  if (input.rank() < 1 || input.numel() < 1) {
    throw_error(ErrorKind::usage, "has no channels to normalise in {}", to_string(input));
  }
  return input;
}

std::vector<ParamSpec> BatchNormLayer::params(const Shape& input) const {
  const Shape channels{input[0]};
  std::vector<ParamSpec> params;
  if (affine_) params = {{"weight", channels, kOnes, {}}, {"bias", channels, kZeros, {}}};
  params.push_back({"running_mean", channels, kZeros, {}, ParamKind::statistic});
  params.push_back({"running_var", channels, kOnes, {}, ParamKind::statistic});
  params.push_back({"num_batches_tracked", {}, kZeros, {}, ParamKind::counter});
  return params;
}

Value BatchNormLayer::forward(Builder& builder, LayerValues& values) const {
  const Image in = channels_of(values.input);
  const Value y = builder.like(fmt::format("x{}", values.layer + 1), values.x);
  const size_t running = affine_ ? 2 : 0;  // where the statistics are in params
  const Value gamma = affine_ ? values.params[0] : Value{};
  const Value beta = affine_ ? values.params[1] : Value{};
  const Value &mean = values.params[running], &var = values.params[running + 1];
  if (!builder.training()) {
    builder.add(BatchNormInfer{values.x, gamma, beta, mean, var, y, in, epsilon_});
    return y;
  }
  if (values.x.shape[0] * in.pixels() < 2) {
    throw_error(ErrorKind::usage,
                "layer {} (batchnorm) has one number a channel of {} to learn from: {}",
                values.layer, to_string(values.input), single_sample_remedy(builder.options()));
  }
  values.saved = {norm_statistic(builder, "mean", values.layer, in.c),
                  norm_statistic(builder, "rstd", values.layer, in.c)};
  builder.add(BatchNorm{values.x, gamma, beta, mean, var, values.params[running + 2], y,
                        values.saved[0], values.saved[1], in, epsilon_, momentum_});
  return y;
}

Value BatchNormLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                               bool needs_dx) const {
  auto op = gradient<BatchNormGrad>(builder, values, dy, affine_, needs_dx);
  op.in = channels_of(values.input);
  if (needs_dx || affine_) builder.add(op);
  return op.dx;
}

std::string BatchNormLayer::to_toml() const {
  return fmt::format("{{ type = \"batchnorm\", eps = {}, momentum = {}, affine = {} }}",
                     toml_number(epsilon_), toml_number(momentum_), affine_);
}

}  // namespace ridgeline::nn
