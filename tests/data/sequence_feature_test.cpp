#include <algorithm>
#include <numeric>

#include "ridgeline/data/prepare/preparation.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using testing::expect_error;

// Samples of 2, 0 and 3 timesteps with the numbers 1 to 5.
FieldSet lists(DType dtype = DType::fp64) {
  HostTensor timesteps(dtype, {5});
  if (dtype == DType::int32) {
    std::iota(timesteps.span<int32_t>().begin(), timesteps.span<int32_t>().end(), 1);
  } else {
    std::iota(timesteps.span<double>().begin(), timesteps.span<double>().end(), 1.0);
  }
  FieldSet set("lists");
  set.add(sequence_field("x", std::move(timesteps), std::vector<int64_t>{2, 0, 3}));
  return set;
}

std::vector<int32_t> lengths_of(const Preparation& preparation, const FieldSet& set) {
  std::vector<int32_t> lengths(size_t(set.size()));
  preparation.sequence()->lengths(set.field("x"), 0, set.size(), lengths);
  return lengths;
}

std::vector<float> apply(const Preparation& preparation, const FieldSet& set) {
  std::vector<float> out(size_t(set.size() * preparation.width()), -1.0f);
  preparation.apply(set, 0, set.size(), std::span<float>(out));
  return out;
}

TEST(SequenceFeature, PadsWithZerosAndScalesByTheTimestepsOfTraining) {
  const FieldSet set = lists();
  PrepareRules rules;
  rules.rule.scale = NumberScale::min_max;
  const std::vector<int64_t> train{0, 1};
  const Preparation learnt = Preparation::fit(set, train, rules);
  EXPECT_EQ(learnt.input_shape(), (Shape{3, 1}));  // the longest of all samples
  EXPECT_EQ(lengths_of(learnt, set), (std::vector<int32_t>{2, 0, 3}));
  // 1 and 2 are what was trained on.
  EXPECT_EQ(apply(learnt, set), (std::vector<float>{0, 1, 0, 0, 0, 0, 2, 3, 4}));
  EXPECT_EQ(Preparation::from_json(learnt.to_json(), "kept"), learnt);
}

TEST(SequenceFeature, CutsWhereItIsToldToAndElseRefuses) {
  const FieldSet set = lists();
  PrepareRules rules;
  rules.rule.scale = NumberScale::none;
  rules.length = 2;
  const std::vector<int64_t> train{0, 1, 2};
  const Preparation cut = Preparation::fit(set, train, rules);
  EXPECT_EQ(lengths_of(cut, set), (std::vector<int32_t>{2, 0, 2}));
  EXPECT_EQ(apply(cut, set), (std::vector<float>{1, 2, 0, 0, 3, 4}));
  rules.length.reset();
  FieldSet one("one");
  HostTensor steps(DType::fp64, {2});
  one.add(sequence_field("x", std::move(steps), std::vector<int64_t>{2}));
  const Preparation small = Preparation::fit(one, std::vector<int64_t>{0}, rules);
  expect_error(ErrorKind::data, {"sample 2", "3 timesteps", "2 at most", "data.length"},
               [&] { (void)apply(small, set); });
}

TEST(SequenceFeature, TakesArraysOfOneLength) {
  const FieldSet set = lists();
  PrepareRules rules;
  rules.rule.scale = NumberScale::none;
  const Preparation learnt = Preparation::fit(set, std::vector<int64_t>{0, 1, 2}, rules);
  FieldSet dense("dense");
  HostTensor values(DType::fp64, {2, 2});
  std::iota(values.span<double>().begin(), values.span<double>().end(), 7.0);
  dense.add(number_field("x", std::move(values)));
  EXPECT_EQ(lengths_of(learnt, dense), (std::vector<int32_t>{2, 2}));
  EXPECT_EQ(apply(learnt, dense), (std::vector<float>{7, 8, 0, 9, 10, 0}));
}

TEST(SequenceFeature, TokensAreWholeNumbersThatTheEmbeddingKnows) {
  const FieldSet set = lists(DType::int32);
  PrepareRules rules;
  rules.tokens = 6;
  const Preparation learnt = Preparation::fit(set, std::vector<int64_t>{0, 2}, rules);
  EXPECT_EQ(learnt.input_shape(), (Shape{3}));
  EXPECT_EQ(apply(learnt, set), (std::vector<float>{1, 2, 0, 0, 0, 0, 3, 4, 5}));
  EXPECT_EQ(Preparation::from_json(learnt.to_json(), "kept"), learnt);
  rules.tokens = 5;
  const Preparation fewer = Preparation::fit(set, std::vector<int64_t>{0}, rules);
  expect_error(ErrorKind::data, {"timestep 2 of sample 2", "is 5", "5 tokens"},
               [&] { (void)apply(fewer, set); });
  expect_error(ErrorKind::usage, {"takes tokens"},
               [&] { (void)Preparation::fit(lists(), std::vector<int64_t>{0}, rules); });
}

TEST(SequenceFeature, RefusesDamagedDescriptions) {
  PrepareRules rules;
  rules.tokens = 6;
  const Preparation learnt =
      Preparation::fit(lists(DType::int32), std::vector<int64_t>{0, 2}, rules);
  const std::string good = learnt.to_json();
  for (const auto& [from, to] :
       {std::pair{"\"length\":3", "\"length\":0"}, std::pair{"\"tokens\":6", "\"tokens\":-1"},
        std::pair{"\"cut\":false", "\"cut\":0"}, std::pair{"\"shape\":[]", "\"shape\":[2]"}}) {
    std::string bad = good;
    const size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, std::string(from).size(), to);
    expect_error(ErrorKind::model, {"kept"}, [&] { (void)Preparation::from_json(bad, "kept"); });
  }
}

}  // namespace
}  // namespace ridgeline::data
