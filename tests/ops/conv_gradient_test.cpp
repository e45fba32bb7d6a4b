// Compares gradients of convolutions, pools and normalisations with central differences, in fp64.
#include "tests/ops/differentiable.h"
#include "tests/support/conv_cases.h"

namespace ridgeline::test {
namespace {

Differentiable conv(const ConvCase& conv, bool bias) {
  const auto& [n, shape] = conv;
  CaseBuilder c("conv2d " + to_string(conv), DType::fp64);
  const Shape in{n, shape.in.numel()}, out{n, shape.out().numel()};
  const Value x = c.in("x", in), w = c.param("w", shape.weight());
  const Value b = bias ? c.param("b", {shape.k}) : Value{};
  const Value y = c.out("y", out), dy = c.in("dy", out);
  const Value dx = c.out("dx", in), dw = c.out("dw", shape.weight());
  const Value db = bias ? c.out("db", {shape.k}) : Value{};
  c.add(Conv2d{x, w, b, y, shape});
  c.add(Conv2dGradX{dy, w, dx, shape});
  c.add(Conv2dGradW{x, dy, dw, db, shape});
  Differentiable d{c.done(), 1, y, dy, {{x, dx}, {w, dw}}};
  if (bias) d.wanted.emplace_back(b, db);
  return d;
}

Differentiable max_pool(const PoolCase& pool) {
  const auto& [n, shape] = pool;
  CaseBuilder c("max_pool " + to_string(pool), DType::fp64);
  const Shape in{n, shape.in.numel()}, out{n, shape.out().numel()};
  const Value x = c.in("x", in), y = c.out("y", out), dy = c.in("dy", out), dx = c.out("dx", in);
  c.add(MaxPool{x, y, shape});
  c.add(MaxPoolGrad{x, y, dy, dx, shape});
  return {c.done(), 1, y, dy, {{x, dx}}};
}

Differentiable avg_pool(const PoolCase& pool, PoolCount count) {
  const auto& [n, shape] = pool;
  CaseBuilder c("avg_pool " + to_string(pool), DType::fp64);
  const Shape in{n, shape.in.numel()}, out{n, shape.out().numel()};
  const Value x = c.in("x", in), y = c.out("y", out), dy = c.in("dy", out), dx = c.out("dx", in);
  c.add(AvgPool{x, y, shape, count});
  c.add(AvgPoolGrad{dy, dx, shape, count});
  return {c.done(), 1, y, dy, {{x, dx}}};
}

Differentiable layer_norm(bool affine) {
  CaseBuilder c("layer_norm", DType::fp64);
  const Shape shape{3, 10};
  const Value x = c.in("x", shape), y = c.out("y", shape), dy = c.in("dy", shape);
  const Value mean = c.out("mean", {6}), rstd = c.out("rstd", {6}), dx = c.out("dx", shape);
  const Value gamma = affine ? c.param("gamma", {5}) : Value{};
  const Value beta = affine ? c.param("beta", {5}) : Value{};
  const Value dgamma = affine ? c.out("dgamma", {5}) : Value{};
  const Value dbeta = affine ? c.out("dbeta", {5}) : Value{};
  c.add(LayerNorm{x, gamma, beta, y, mean, rstd, 5, 1e-3});
  c.add(LayerNormGrad{x, gamma, mean, rstd, dy, dx, dgamma, dbeta, 5});
  Differentiable d{c.done(), 1, y, dy, {{x, dx}}};
  if (affine) {
    d.wanted.emplace_back(gamma, dgamma);
    d.wanted.emplace_back(beta, dbeta);
  }
  return d;
}

Differentiable batch_norm(bool affine) {
  CaseBuilder c("batch_norm", DType::fp64);
  const Image in{3, 2, 2};
  const Shape shape{4, in.numel()}, channels{3};
  const Value x = c.in("x", shape), y = c.out("y", shape), dy = c.in("dy", shape);
  const Value mean = c.out("mean", channels), rstd = c.out("rstd", channels);
  const Value running_mean = c.state("running_mean", channels);
  const Value running_var = c.state("running_var", channels);
  const Value batches = c.make("batches", DType::int64, {1}, Role::state, constant(0));
  const Value dx = c.out("dx", shape);
  const Value gamma = affine ? c.param("gamma", channels) : Value{};
  const Value beta = affine ? c.param("beta", channels) : Value{};
  const Value dgamma = affine ? c.out("dgamma", channels) : Value{};
  const Value dbeta = affine ? c.out("dbeta", channels) : Value{};
  c.add(BatchNorm{x, gamma, beta, running_mean, running_var, batches, y, mean, rstd, in, 1e-3});
  c.add(BatchNormGrad{x, gamma, mean, rstd, dy, dx, dgamma, dbeta, in});
  Differentiable d{c.done(), 1, y, dy, {{x, dx}}};
  if (affine) {
    d.wanted.emplace_back(gamma, dgamma);
    d.wanted.emplace_back(beta, dbeta);
  }
  return d;
}

// The small shapes of the table walk: strides, dilation, groups, one axis.
std::vector<ConvCase> small_convs() {
  const auto all = conv_shapes();
  return {all[0], all[1], all[2], all[3], all[5], all[7]};
}

TEST(Gradient, Conv2d) {
  for (const ConvCase& each : small_convs()) {
    for (const bool bias : {true, false}) {
      EXPECT_TRUE(gradients_agree(conv(each, bias))) << to_string(each);
    }
  }
}

TEST(Gradient, Pools) {
  const auto all = pool_shapes();
  for (const size_t which : {0, 2, 3, 5, 6}) {
    EXPECT_TRUE(gradients_agree(max_pool(all[which]))) << to_string(all[which]);
    for (const PoolCount count : {PoolCount::window, PoolCount::image}) {
      EXPECT_TRUE(gradients_agree(avg_pool(all[which], count))) << to_string(all[which]);
    }
  }
}

TEST(Gradient, Normalisations) {
  for (const bool affine : {true, false}) {
    EXPECT_TRUE(gradients_agree(layer_norm(affine)));
    EXPECT_TRUE(gradients_agree(batch_norm(affine)));
  }
}

TEST(GradientControl, ASlightlyWrongGradientOfAnImageOpFails) {
  const auto pool = pool_shapes()[3];
  for (const Differentiable& d :
       {conv(conv_shapes()[2], true), max_pool(pool), avg_pool(pool, PoolCount::image),
        layer_norm(true), batch_norm(true)}) {
    expect_slips_noticed(d);
  }
}

TEST(GradientControl, AnotherPaddingOrStrideFails) {
  auto [n, shape] = conv_shapes()[1];
  CaseBuilder c("conv2d_grad_w of another padding", DType::fp64);
  const Shape in{n, shape.in.numel()}, out{n, shape.out().numel()};
  const Value x = c.in("x", in), w = c.param("w", shape.weight()), y = c.out("y", out);
  const Value dy = c.in("dy", out), dw = c.out("dw", shape.weight());
  c.add(Conv2d{x, w, {}, y, shape});
  shape.window.w.pad = 0;
  shape.window.w.kernel = 1;
  shape.window.w.stride = 1;
  c.add(Conv2dGradW{x, dy, dw, {}, shape});
  EXPECT_FALSE(gradients_agree({c.done(), 1, y, dy, {{w, dw}}}));
}

// Statistics treated as constants: a gradient that ignores the mean and the variance.
TEST(GradientControl, ABatchNormWithoutItsSumsFails) {
  CaseBuilder c("batch_norm as a scale", DType::fp64);
  const Image in{1, 1, 1};
  const Shape shape{5, 1};
  const Value x = c.in("x", shape), y = c.out("y", shape), dy = c.in("dy", shape);
  const Value mean = c.out("mean", {1}), rstd = c.out("rstd", {1}), dx = c.out("dx", shape);
  const Value batches = c.make("batches", DType::int64, {1}, Role::state, constant(0));
  c.add(BatchNorm{x, {}, {}, c.state("m", {1}), c.state("v", {1}), batches, y, mean, rstd, in});
  c.add(AvgPoolGrad{dy, dx, {in, {}}, PoolCount::window});  // dx = dy
  EXPECT_FALSE(gradients_agree({c.done(), 1, y, dy, {{x, dx}}}));
}

}  // namespace
}  // namespace ridgeline::test
