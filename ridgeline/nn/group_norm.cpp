#include "ridgeline/nn/group_norm.h"

#include <fmt/format.h>

#include "ridgeline/nn/builder.h"
#include "ridgeline/nn/norm_shape.h"

namespace ridgeline::nn {
namespace {

constexpr int64_t kMostGroups = int64_t{1} << 20;

// The runs of a batch's numbers; see GroupNorm of ops/norm.h.
struct Runs {
  int64_t groups, width, spatial;
  bool centred;
};

Value add_forward(Builder& builder, LayerValues& values, const Runs& runs, double epsilon) {
  GroupNorm op;
  op.x = values.x;
  if (!values.params.empty()) op.gamma = values.params[0];
  if (values.params.size() > 1) op.beta = values.params[1];
  op.y = builder.like(fmt::format("x{}", values.layer + 1), values.x);
  op.groups = runs.groups;
  op.width = runs.width;
  op.spatial = runs.spatial;
  op.centred = runs.centred;
  op.epsilon = epsilon;
  if (builder.training()) {
    if (runs.centred) op.mean = norm_statistic(builder, "mean", values.layer, op.runs());
    op.rstd = norm_statistic(builder, "rstd", values.layer, op.runs());
    values.saved = {op.mean, op.rstd};
  }
  builder.add(op);
  return op.y;
}

Value add_backward(Builder& builder, const LayerValues& values, const Value& dy, bool needs_dx,
                   const Runs& runs) {
  GroupNormGrad op;
  op.x = values.x;
  op.mean = values.saved[0];
  op.rstd = values.saved[1];
  op.dy = dy;
  if (!values.params.empty()) {
    op.gamma = values.params[0];
    op.dgamma = values.grads[0];
  }
  if (values.params.size() > 1) op.dbeta = values.grads[1];
  if (needs_dx) op.dx = builder.like(fmt::format("dx{}", values.layer), values.x);
  op.groups = runs.groups;
  op.width = runs.width;
  op.spatial = runs.spatial;
  op.centred = runs.centred;
  if (needs_dx || !values.params.empty()) builder.add(op);
  return op.dx;
}

Runs group_runs(const Shape& input, int64_t groups) {
  return {groups, input.numel() / groups, input.numel() / input[0], true};
}

Runs rms_runs(const Shape& input, int64_t dims) {
  return {1, last_dims(input, dims).numel(), 1, false};
}

}  // namespace

LayerPtr GroupNormLayer::read(ConfigTable& table) {
  const int64_t groups = table.integer("groups", std::nullopt, {1, kMostGroups});
  const double epsilon = read_norm_epsilon(table);
  return std::make_shared<GroupNormLayer>(groups, epsilon, table.boolean("affine", true));
}

Shape GroupNormLayer::output(const Shape& input) const {
  if (input.rank() < 1 || input.numel() < 1 || input[0] % groups_ != 0) {
    throw_error(ErrorKind::usage, "cannot share the channels of {} out among {} groups",
                to_string(input), groups_);
  }
  return input;
}

std::vector<ParamSpec> GroupNormLayer::params(const Shape& input) const {
  if (!affine_) return {};
  const Shape channels{input[0]};
  return {{"weight", channels, {InitKind::ones}, {}}, {"bias", channels, {InitKind::zeros}, {}}};
}

Value GroupNormLayer::forward(Builder& builder, LayerValues& values) const {
  return add_forward(builder, values, group_runs(values.input, groups_), epsilon_);
}

Value GroupNormLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                               bool needs_dx) const {
  return add_backward(builder, values, dy, needs_dx, group_runs(values.input, groups_));
}

std::string GroupNormLayer::to_toml() const {
  return fmt::format("{{ type = \"groupnorm\", groups = {}, eps = {}, affine = {} }}", groups_,
                     toml_number(epsilon_), affine_);
}

LayerPtr RmsNormLayer::read(ConfigTable& table) {
  const int64_t dims = table.integer("dims", 0, {0, Shape::kMaxRank});
  const double epsilon = read_norm_epsilon(table);
  return std::make_shared<RmsNormLayer>(dims, epsilon, table.boolean("affine", true));
}

Shape RmsNormLayer::output(const Shape& input) const {
  last_dims(input, dims_);
  return input;
}

std::vector<ParamSpec> RmsNormLayer::params(const Shape& input) const {
  if (!affine_) return {};
  return {{"weight", last_dims(input, dims_), {InitKind::ones}, {}}};
}

Value RmsNormLayer::forward(Builder& builder, LayerValues& values) const {
  return add_forward(builder, values, rms_runs(values.input, dims_), epsilon_);
}

Value RmsNormLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                             bool needs_dx) const {
  return add_backward(builder, values, dy, needs_dx, rms_runs(values.input, dims_));
}

std::string RmsNormLayer::to_toml() const {
  return fmt::format("{{ type = \"rmsnorm\", dims = {}, eps = {}, affine = {} }}", dims_,
                     toml_number(epsilon_), affine_);
}

}  // namespace ridgeline::nn
