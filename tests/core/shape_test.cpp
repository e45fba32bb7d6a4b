#include "ridgeline/core/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "ridgeline/core/buffer.h"

namespace ridgeline {
namespace {

using testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kBig = int64_t{1} << 40;

template <typename F>
void expect_data_error(F&& f, const char* part) {
  try {
    f();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(CheckedArithmetic, GivesTheResultUpToTheLastValue) {
  EXPECT_EQ(checked_mul(6, 7, "x"), 42);
  EXPECT_EQ(checked_mul(0, kMax, "x"), 0);
  EXPECT_EQ(checked_mul(kMax, 1, "x"), kMax);
  EXPECT_EQ(checked_add(kMax - 1, 1, "x"), kMax);
  EXPECT_EQ(checked_mul(int64_t{1} << 31, (int64_t{1} << 32) - 1, "x"), kMax - ((1ll << 31) - 1));
}

TEST(CheckedArithmetic, NamesWhatOverflowed) {
  expect_data_error([] { checked_mul(int64_t{1} << 32, int64_t{1} << 31, "images"); }, "images: ");
  expect_data_error([] { checked_mul(kMax, 2, "images"); }, "images: ");
  expect_data_error([] { checked_add(kMax, 1, "rows"); }, "rows: ");
}

TEST(Shape, IsAValue) {
  const Shape shape{32, 28, 28};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[1], 28);
  EXPECT_EQ(shape.back(), 28);
  EXPECT_EQ(shape.numel(), 32 * 28 * 28);
  EXPECT_EQ(shape, (Shape{32, 28, 28}));
  EXPECT_NE(shape, (Shape{32, 28}));
  EXPECT_EQ(to_string(shape), "[32, 28, 28]");
}

TEST(Shape, ScalarsAndEmptyShapesCountRight) {
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ((Shape{0}).numel(), 0);
  EXPECT_EQ((Shape{3, 0, 5}).numel(), 0);
}

TEST(Shape, DerivedShapes) {
  const Shape shape{32, 3, 28, 14};
  EXPECT_EQ(shape.with(0, 7), (Shape{7, 3, 28, 14}));
  EXPECT_EQ(shape.drop_front(), (Shape{3, 28, 14}));
  EXPECT_EQ(shape.drop_front().prepend(9), (Shape{9, 3, 28, 14}));
  EXPECT_EQ(shape.flat_from(1), (Shape{32, 3 * 28 * 14}));
  EXPECT_EQ(shape.flat_from(0), (Shape{32 * 3 * 28 * 14}));
  EXPECT_EQ((Shape{5, 6}).flat_from(1), (Shape{5, 6}));
  EXPECT_EQ((Shape{5}).flat_from(1), (Shape{5, 1}));
}

TEST(Shape, RefusesOverflowNegativeAndTooManyExtents) {
  expect_data_error([] { Shape({kBig, kBig}); }, "overflows");
  expect_data_error([] { Shape({2, -1}); }, "-1");
  expect_data_error([] { Shape({1, 1, 1, 1, 1, 1, 1}); }, "7 dimensions");
  expect_data_error([] { Shape({1, 1, 1, 1, 1, 1}).prepend(2); }, "7 dimensions");
  expect_data_error([] { Shape({1, 1, 1, 1, 1, 1}).flat_from(6); }, "7 dimensions");
  expect_data_error([] { Shape({kBig, 1}).with(1, kBig); }, "overflows");
}

// An extent of zero in front hides the product of the rest from the constructor.
TEST(Shape, DerivedShapesAreCheckedToo) {
  const Shape shape{0, kBig, kBig};
  expect_data_error([&] { shape.drop_front(); }, "overflows");
  expect_data_error([&] { shape.flat_from(1); }, "overflows");
  expect_data_error([&] { shape.with(0, 1); }, "overflows");
}

TEST(HostTensor, IsZeroedAlignedAndPadded) {
  const HostTensor tensor(DType::fp32, Shape{3, 5});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.view().data) % kAlignment, 0u);
  ASSERT_EQ(tensor.span<float>().size(), 15u);
  EXPECT_EQ(tensor.view().bytes(), 60u);
  for (const float x : tensor.span<float>()) EXPECT_EQ(x, 0.0f);
  // A whole vector loaded at the last element is inside, and zero (a sanitizer would object if
  // not).
  const auto* last = reinterpret_cast<const std::byte*>(&tensor.span<float>()[14]);
  for (size_t i = 4; i < kAlignment; ++i) EXPECT_EQ(last[i], std::byte{0});
}

TEST(HostTensor, BytesThatOverflowAreRefused) {
  expect_data_error([] { HostTensor(DType::fp64, Shape{(int64_t{1} << 61) + 1}); }, "overflows");
}

TEST(HostTensor, MoreThanTheMachineHasIsADeviceError) {
  try {
    const Buffer exabyte(size_t{1} << 60);
    FAIL() << "an exabyte was allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
  }
}

}  // namespace
}  // namespace ridgeline
