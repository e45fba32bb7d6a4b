#include "ridgeline/data/field_set.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/data/array_files.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
using ::testing::ElementsAre;

HostTensor floats(std::vector<float> values, const Shape& shape) {
  HostTensor tensor(DType::fp32, shape);
  std::ranges::copy(values, tensor.span<float>().begin());
  return tensor;
}

TEST(FieldSetTest, HoldsNamedFieldsOfOneLength) {
  FieldSet set("memory");
  set.add(number_field("x", floats({1, 2, 3, 4, 5, 6}, {3, 2})));
  set.add(category_field("kind", std::vector<int32_t>{1, -1, 0}, {"cat", "dog"}));
  set.add(text_field("note", std::string("abcd"), {0, 1, 1, 4}));
  EXPECT_EQ(set.size(), 3);
  EXPECT_EQ(set.bytes(), 24 + 12 + 4);
  EXPECT_EQ(set.field("x").shape, Shape({2}));
  EXPECT_EQ(read_text(set.field("note"), 0), "a");
  EXPECT_EQ(read_text(set.field("note"), 1), "");
  EXPECT_EQ(read_text(set.field("note"), 2), "bcd");
  EXPECT_EQ(set.find("y"), nullptr);
  expect_error(ErrorKind::data, {"memory", "'kinds'", "did you mean 'kind'"},
               [&] { (void)set.field("kinds"); });
  expect_error(ErrorKind::data, {"no field 'price'", "there are x, kind, note"},
               [&] { (void)set.field("price"); });
  expect_error(ErrorKind::data, {"two fields are named 'x'"}, [&] {
    set.add(number_field("x", floats({1, 2, 3}, {3})));
  });
  expect_error(ErrorKind::data, {"field 'z' has 2 samples, but 'x' has 3"}, [&] {
    set.add(number_field("z", floats({1, 2}, {2})));
  });
  expect_error(ErrorKind::data, {"single number"},
               [&] { set.add(number_field("s", floats({1}, {}))); });
}

TEST(FieldSetTest, BorrowsArraysOfTheCaller) {
  HostTensor owned = floats({1, 2, 3, 4}, {2, 2});
  const Field field = borrowed_field("x", owned.view());
  EXPECT_EQ(static_cast<const void*>(field.values->resident().data()), owned.view().data);
  owned.span<float>()[3] = 9;
  EXPECT_THAT(doubles(field), ElementsAre(1, 2, 3, 9));
  const Field copy = load(field);
  owned.span<float>()[3] = 4;
  EXPECT_THAT(doubles(copy), ElementsAre(1, 2, 3, 9));
}

TEST(FieldSetTest, GathersSamplesInAnyOrder) {
  const Field field = number_field("x", floats({0, 1, 10, 11, 20, 21, 30, 31}, {4, 2}));
  std::vector<float> out(10);
  gather(field, std::vector<int64_t>{2, 3, 0, 0, 1}, std::as_writable_bytes(std::span(out)));
  EXPECT_THAT(out, ElementsAre(20, 21, 30, 31, 0, 1, 0, 1, 10, 11));
}

TEST(FieldSetTest, ReadsEveryTypeAsDoublesAndMissingAsNaN) {
  const auto number = [](auto value) {
    using T = decltype(value);
    HostTensor tensor(dtype_of<T>(), {1});
    tensor.span<T>()[0] = value;
    return doubles(number_field("x", std::move(tensor)))[0];
  };
  EXPECT_EQ(number(uint8_t{200}), 200);
  EXPECT_EQ(number(int32_t{-7}), -7);
  EXPECT_EQ(number(int64_t{1} << 40), double(int64_t{1} << 40));
  EXPECT_EQ(number(Fp16(0.5f)), 0.5);
  EXPECT_EQ(number(Bf16(-2.0f)), -2);
  EXPECT_EQ(number(0.25f), 0.25);
  EXPECT_EQ(number(0.1), 0.1);
  EXPECT_TRUE(std::isnan(doubles(category_field("c", std::vector<int32_t>{-1}, {}))[0]));
  EXPECT_TRUE(std::isnan(doubles(boolean_field("b", std::vector<uint8_t>{255}))[0]));
  EXPECT_EQ(doubles(boolean_field("b", std::vector<uint8_t>{1}))[0], 1);
}

TEST(FieldSetTest, KeepsSequencesOfOwnLengths) {
  const std::vector<int64_t> lengths{2, 0, 1};
  const Field field = sequence_field("s", floats({1, 2, 3, 4, 5, 6}, {3, 2}), lengths);
  EXPECT_EQ(field.samples, 3);
  EXPECT_EQ(field.rows(), 3);
  EXPECT_EQ(field.shape, Shape({2}));
  EXPECT_THAT(*field.offsets, ElementsAre(0, 2, 2, 3));
  expect_error(ErrorKind::data, {"'s'", "sum to 2", "3 timesteps"}, [&] {
    (void)sequence_field("s", floats({1, 2, 3}, {3}), std::vector<int64_t>{1, 1});
  });
  expect_error(ErrorKind::data, {"'s'", "sample 1", "-1"}, [&] {
    (void)sequence_field("s", floats({1, 2, 3}, {3}), std::vector<int64_t>{4, -1});
  });
}

}  // namespace
}  // namespace ridgeline::data
