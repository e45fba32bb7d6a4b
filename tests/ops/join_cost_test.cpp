#include "tests/ops/cost.h"

namespace ridgeline::test {
namespace {

TEST(JoinCost, SumsAndProducts) {
  CaseBuilder c("", DType::fp32);
  const Value a = c.in("a", {2, 12}), b = c.in("b", {2, 12}), y = c.out("y", {2, 12});
  EXPECT_EQ(cost(Add{{a, b, a}, y}), (Cost{2 * 24, 4 * 96}));
  EXPECT_EQ(cost(Add{{a, b, a}, y, 1.0 / 3}), (Cost{3 * 24, 4 * 96}));
  EXPECT_EQ(cost(Add{{a}, y, 0.5}), (Cost{24, 2 * 96}));
  EXPECT_EQ(cost(Multiply{a, b, y}), (Cost{24, 3 * 96}));
  EXPECT_EQ(cost(Concat{{a, b}, c.out("z", {2, 24}), 2}), (Cost{0, 4 * 96}));
}

TEST(JoinCost, Rearrangements) {
  CaseBuilder c("", DType::fp32);
  const Value x = c.in("x", {2, 12}), large = c.out("large", {2, 48}), y = c.out("y", {2, 12});
  // 3 x 4 inside 6 x 8: all of x is read. Cut out again: a quarter is read and all is written.
  EXPECT_EQ(cost(Pad{x, large, {1, 3, 4}, {1, 6, 8}, {0, 1, 2}}), (Cost{0, 96 + 384}));
  EXPECT_EQ(cost(Pad{large, x, {1, 6, 8}, {1, 3, 4}, {0, -1, -2}}), (Cost{0, 96 + 96}));
  EXPECT_EQ(cost(Pad{x, y, {1, 3, 4}, {1, 3, 4}, {0, 0, 4}}), (Cost{0, 96}));
  EXPECT_EQ(cost(Transpose{x, y, {3, 4}, {1, 0}}), (Cost{0, 192}));
  const UpsampleShape nearest{{1, 3, 4}, 2, 2}, bilinear{{1, 3, 4}, 2, 2, UpsampleMode::bilinear};
  EXPECT_EQ(cost(Upsample{x, large, nearest}), (Cost{0, 480}));
  EXPECT_EQ(cost(Upsample{x, large, bilinear}), (Cost{6 * 96, 480}));
  EXPECT_EQ(cost(UpsampleGrad{large, x, nearest}), (Cost{96, 480}));
  EXPECT_EQ(cost(UpsampleGrad{large, x, bilinear}), (Cost{8 * 96, 480}));
}

}  // namespace
}  // namespace ridgeline::test
