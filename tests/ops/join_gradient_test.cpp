#include "tests/ops/differentiable.h"

namespace ridgeline::test {
namespace {

Differentiable mean() {
  CaseBuilder c("mean", DType::fp64);
  const Value a = c.in("a", {3, 5}), b = c.in("b", {3, 5}), y = c.out("y", {3, 5});
  const Value dy = c.in("dy", {3, 5}), dx = c.out("dx", {3, 5});
  c.add(Add{{a, b}, y, 0.5});
  c.add(Add{{dy}, dx, 0.5});
  return {c.done(), 1, y, dy, {{a, dx}, {b, dx}}};
}

Differentiable multiply() {
  CaseBuilder c("multiply", DType::fp64);
  const Value a = c.in("a", {3, 5}), b = c.in("b", {3, 5}), y = c.out("y", {3, 5});
  const Value dy = c.in("dy", {3, 5}), da = c.out("da", {3, 5}), db = c.out("db", {3, 5});
  c.add(Multiply{a, b, y});
  c.add(Multiply{dy, b, da});
  c.add(Multiply{dy, a, db});
  return {c.done(), 1, y, dy, {{a, da}, {b, db}}};
}

// Rows of 4 and 3 numbers, two per sample.
Differentiable concat() {
  CaseBuilder c("concat", DType::fp64);
  const Value a = c.in("a", {3, 8}), b = c.in("b", {3, 6}), y = c.out("y", {3, 14});
  const Value dy = c.in("dy", {3, 14}), da = c.out("da", {3, 8}), db = c.out("db", {3, 6});
  c.add(Concat{{a, b}, y, 6});
  c.add(Pad{dy, da, {1, 2, 7}, {1, 2, 4}, {}});
  c.add(Pad{dy, db, {1, 2, 7}, {1, 2, 3}, {0, 0, -4}});
  return {c.done(), 1, y, dy, {{a, da}, {b, db}}};
}

Differentiable pad() {
  CaseBuilder c("pad", DType::fp64);
  const Value x = c.in("x", {2, 24}), y = c.out("y", {2, 45});
  const Value dy = c.in("dy", {2, 45}), dx = c.out("dx", {2, 24});
  c.add(Pad{x, y, {2, 3, 4}, {3, 3, 5}, {1, -1, 0}, 0.5});
  c.add(Pad{dy, dx, {3, 3, 5}, {2, 3, 4}, {-1, 1, 0}});
  return {c.done(), 1, y, dy, {{x, dx}}};
}

Differentiable transpose() {
  CaseBuilder c("transpose", DType::fp64);
  const Value x = c.in("x", {2, 24}), y = c.out("y", {2, 24});
  const Value dy = c.in("dy", {2, 24}), dx = c.out("dx", {2, 24});
  c.add(Transpose{x, y, {2, 3, 4}, {1, 2, 0}});
  c.add(Transpose{dy, dx, {3, 4, 2}, {2, 0, 1}});
  return {c.done(), 1, y, dy, {{x, dx}}};
}

Differentiable upsample(UpsampleMode mode) {
  CaseBuilder c("upsample", DType::fp64);
  const UpsampleShape shape{{2, 3, 2}, 2, 3, mode};
  const Value x = c.in("x", {2, 12}), y = c.out("y", {2, 72});
  const Value dy = c.in("dy", {2, 72}), dx = c.out("dx", {2, 12});
  c.add(Upsample{x, y, shape});
  c.add(UpsampleGrad{dy, dx, shape});
  return {c.done(), 1, y, dy, {{x, dx}}};
}

TEST(Gradient, JoinsAndRearrangements) {
  for (const Differentiable& d :
       {mean(), multiply(), concat(), pad(), transpose(), upsample(UpsampleMode::nearest),
        upsample(UpsampleMode::bilinear)}) {
    EXPECT_TRUE(gradients_agree(d)) << d.c.name;
    expect_slips_noticed(d);
  }
}

}  // namespace
}  // namespace ridgeline::test
