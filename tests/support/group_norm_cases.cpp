#include <fmt/format.h>

#include "tests/support/conv_cases.h"

namespace ridgeline::test {
namespace {

struct GroupShape {
  int64_t n, groups, channels, spatial;  // channels of a group
};

// Ones, tails, single channels per group, one group of all channels, channels of one number.
constexpr GroupShape kGroupShapes[] = {{1, 1, 1, 1},  {3, 1, 37, 1},  {5, 4, 1, 9}, {4, 3, 2, 17},
                                       {2, 2, 8, 49}, {33, 1, 10, 1}, {7, 5, 3, 1}, {2, 1, 4, 100}};

Case group_norm_case(DType dtype, const GroupShape& s, bool centred, bool affine, bool mixed) {
  const auto& [n, groups, channels, spatial] = s;
  CaseBuilder c(
      fmt::format("{} {}x{}x{}x{}{}{}", centred ? "group_norm" : "rms_norm", n, groups, channels,
                  spatial, affine ? "" : " without gamma", mixed ? " mixed" : ""),
      dtype);
  const int64_t width = channels * spatial;
  const Shape shape{n, groups * width}, weights{groups * channels};
  const auto made = [&, count = n * groups](const char* name) {
    return c.make(name, statistics(dtype), {count}, Role::output, normal(1));
  };
  const auto weight = [&](const char* name, Role role) {
    if (mixed) return c.accumulator(name, weights, role);
    return role == Role::param ? c.param(name, weights) : c.out(name, weights);
  };
  const Value x = c.in("x", shape), rstd = made("rstd");
  const Value mean = centred ? made("mean") : Value{};
  const Value gamma = affine ? weight("gamma", Role::param) : Value{};
  const Value beta = affine && centred ? weight("beta", Role::param) : Value{};
  GroupNorm norm{x, gamma, beta, c.out("y", shape), mean, rstd, groups, width, spatial};
  norm.centred = centred;
  c.add(norm);
  GroupNormGrad grad{x, gamma, mean, rstd, c.in("dy", shape), c.out("dx", shape), {}, {}};
  grad.groups = groups, grad.width = width, grad.spatial = spatial, grad.centred = centred;
  if (affine) grad.dgamma = weight("dgamma", Role::output);
  if (beta) grad.dbeta = weight("dbeta", Role::output);
  c.add(grad);
  if (affine) {  // the lowest layer wants no dx; inference no statistics
    grad.dx = {};
    c.add(grad);
    norm.y = c.out("inferred", shape);
    norm.mean = norm.rstd = {};
    c.add(norm);
  }
  return c.done();
}

}  // namespace

std::vector<Case> group_norm_cases(DType dtype) {
  std::vector<Case> all;
  for (const GroupShape& shape : kGroupShapes) {
    for (const bool centred : {true, false}) {
      for (const bool affine : {true, false}) {
        all.push_back(group_norm_case(dtype, shape, centred, affine, false));
      }
      if (size_of(dtype) == 2) all.push_back(group_norm_case(dtype, shape, centred, true, true));
    }
  }
  return all;
}

}  // namespace ridgeline::test
