#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <random>

#include "ridgeline/data/prepare/preparation.h"
#include "tests/data/array_files.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Field numbers(std::string name, std::vector<double> values, const Shape& sample = {}) {
  const int64_t n = int64_t(values.size()) / std::max<int64_t>(1, sample.numel());
  HostTensor tensor(DType::fp64, sample.prepend(n));
  std::ranges::copy(values, tensor.span<double>().begin());
  return number_field(std::move(name), std::move(tensor));
}

FieldSet set_of(std::vector<Field> fields) {
  FieldSet set("set");
  for (Field& field : fields) set.add(std::move(field));
  return set;
}

std::vector<int64_t> first(int64_t count) {
  std::vector<int64_t> samples(static_cast<size_t>(count));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

std::vector<double> prepared(const Preparation& p, const FieldSet& set) {
  std::vector<double> out(size_t(set.size() * p.width()));
  p.apply(set, 0, set.size(), out);
  return out;
}

Preparation fit(const FieldSet& set, const PrepareRules& rules = {}) {
  return Preparation::fit(set, first(set.size()), rules);
}

TEST(PrepareTest, StandardisesByTheTrainingSamplesAlone) {
  const FieldSet set = set_of({numbers("x", {1, 2, 3, 4, 1000})});
  const Preparation p = Preparation::fit(set, first(4), {});
  const double deviation = std::sqrt(1.25);
  const std::vector<double> out = prepared(p, set);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_DOUBLE_EQ(out[i], ((i < 4 ? double(i + 1) : 1000.0) - 2.5) / deviation);
  }
  EXPECT_EQ(p.input_shape(), Shape({1}));
}

TEST(PrepareTest, ScalesEachElementByItself) {
  const FieldSet set = set_of({numbers("x", {1, 10, 2, 20, 3, 30}, {2})});
  EXPECT_EQ(fit(set).input_shape(), Shape({2}));
  const std::vector<double> out =
      prepared(fit(set, {.rule = {.scale = NumberScale::min_max}}), set);
  EXPECT_THAT(out, ElementsAre(0, 0, 0.5, 0.5, 1, 1));
  EXPECT_THAT(prepared(fit(set, {.rule = {.scale = NumberScale::none}}), set),
              ElementsAre(1, 10, 2, 20, 3, 30));
}

// Sums of squares of large numbers cancel; the mean of 0.1 is not 0.1.
TEST(PrepareTest, IsExactWhereSumsOfSquaresAreNot) {
  std::vector<double> values;
  for (int i = 0; i < 30000; ++i) values.push_back(1e9 + i % 3);
  const FieldSet set =
      set_of({numbers("x", values), numbers("c", std::vector<double>(30000, 0.1))});
  const Preparation p = fit(set);
  const auto& x = std::get<NumberFeature>(p.features()[0]);
  EXPECT_DOUBLE_EQ(x.shift[0], 1e9 + 1);
  EXPECT_NEAR(x.scale[0], 1 / std::sqrt(2.0 / 3.0), 1e-12);
  const std::vector<double> out = prepared(p, set);
  for (size_t i = 0; i < 30000; ++i) ASSERT_EQ(out[2 * i + 1], 0);
}

TEST(PrepareTest, ClipsThenTakesTheLogarithm) {
  const FieldSet set = set_of({numbers("x", {-5, 0, 3, 1e6})});
  const FeatureRule rule{.scale = NumberScale::none, .log = true, .clip = {{-1, 100}}};
  EXPECT_THAT(prepared(fit(set, {.rule = rule}), set),
              ElementsAre(-std::log(2.0), 0, std::log(4.0), DoubleNear(std::log(101.0), 1e-14)));
  // Statistics are learnt after clipping and logarithm.
  const Preparation p = fit(set, {.rule = {.scale = NumberScale::min_max, .clip = {{0, 3}}}});
  EXPECT_THAT(prepared(p, set), ElementsAre(0, 0, 1, 1));
  expect_error(ErrorKind::usage, {"'x'", "clipped to 3 and 1"}, [&] {
    (void)fit(set, {.rule = {.clip = {{3, 1}}}});
  });
}

TEST(PrepareTest, TreatsMissingNumbersByTheRule) {
  const FieldSet set = set_of({numbers("x", {1, kNaN, 3})});
  expect_error(ErrorKind::data,
               {"'x'", "sample 1", "missing", "data.missing = \"mean\" or \"indicator\""},
               [&] { (void)fit(set); });
  FeatureRule rule{.scale = NumberScale::none, .missing = MissingRule::mean};
  EXPECT_THAT(prepared(fit(set, {.rule = rule}), set), ElementsAre(1, 2, 3));
  rule.missing = MissingRule::indicator;
  const Preparation p = fit(set, {.rule = rule});
  EXPECT_THAT(prepared(p, set), ElementsAre(1, 0, 2, 1, 3, 0));
  EXPECT_THAT(p.input_names(), ElementsAre("x", "x is missing"));
  // Complete in training, missing values later.
  const Preparation whole = fit(set_of({numbers("x", {1, 2})}));
  expect_error(ErrorKind::data, {"'x'", "sample 1", "missing"},
               [&] { (void)prepared(whole, set); });
  expect_error(ErrorKind::data, {"'x'", "no value in the training"}, [&] {
    (void)fit(set_of({numbers("x", {kNaN, kNaN})}), {.rule = {.missing = MissingRule::mean}});
  });
  expect_error(ErrorKind::data, {"'x'", "sample 2", "infinite"}, [&] {
    (void)fit(set_of({numbers("x", {1, 2, INFINITY})}));
  });
}

TEST(PrepareTest, RefusesNumbersBeyondTheRangeOfTheModel) {
  const Preparation p = fit(set_of({numbers("x", {1, 2}), numbers("y", {1, 3})}));
  const FieldSet set = set_of({numbers("x", {1, 1}), numbers("y", {-1e38, 1e39})});
  EXPECT_EQ(prepared(p, set)[3], 1e39);
  std::vector<float> out(4);
  p.apply(set, 0, 1, std::span(out).first(2));
  expect_error(ErrorKind::data, {"'y'", "sample 1", "beyond the range"},
               [&] { p.apply(set, 0, 2, std::span(out)); });
}

TEST(PrepareTest, CodesCategoriesByName) {
  const FieldSet set =
      set_of({category_field("kind", std::vector<int32_t>{2, 0, 2, 1}, {"ant", "bee", "cat"})});
  const Preparation p = Preparation::fit(set, first(3), {});  // no bee in training
  EXPECT_THAT(p.input_names(), ElementsAre("kind=ant", "kind=cat"));
  std::vector<double> out(6);
  p.apply(set, 0, 3, out);
  EXPECT_THAT(out, ElementsAre(0, 1, 1, 0, 0, 1));
  expect_error(ErrorKind::data, {"'kind'", "'bee' of sample 3", "not seen", "ant, cat"},
               [&] { (void)prepared(p, set); });
  // Another file has other codes for the same words, or texts.
  const FieldSet later =
      set_of({category_field("kind", std::vector<int32_t>{0, 1}, {"cat", "dog"})});
  p.apply(later, 0, 1, std::span(out).first(2));
  EXPECT_EQ(out[1], 1);
  const FieldSet texts = set_of({text_field("kind", std::string("antcat"), {0, 3, 6})});
  EXPECT_THAT(prepared(p, texts), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(p.table_options().categories, ElementsAre("kind"));
}

TEST(PrepareTest, TreatsMissingAndUnseenCategoriesByTheRule) {
  const FieldSet set =
      set_of({category_field("kind", std::vector<int32_t>{0, 0, 1, -1, 2}, {"ant", "bee", "cat"})});
  expect_error(ErrorKind::data, {"'kind'", "sample 3", "missing"}, [&] { (void)fit(set); });
  FeatureRule rule{.missing = MissingRule::mean, .unseen = UnseenRule::missing};
  const Preparation mean = Preparation::fit(set, first(4), {.rule = rule});
  const std::vector<double> out = prepared(mean, set);
  EXPECT_THAT(std::vector<double>(out.begin() + 4, out.end()),
              ElementsAre(0, 1, 2.0 / 3, 1.0 / 3, 2.0 / 3, 1.0 / 3));
  rule.missing = MissingRule::indicator;
  EXPECT_EQ(Preparation::fit(set, first(4), {.rule = rule}).width(), 3);
  // Unseen categories are allowed, missing values are not.
  rule.missing = MissingRule::refuse;
  const Preparation strict = Preparation::fit(set, first(3), {.rule = rule});
  expect_error(ErrorKind::data, {"sample 3", "missing"}, [&] { (void)prepared(strict, set); });
  rule.coding = CategoryCoding::codes;
  const Preparation coded = Preparation::fit(set, std::vector<int64_t>{0, 2}, {.rule = rule});
  EXPECT_EQ(coded.width(), 0);
  ASSERT_EQ(coded.coded().size(), 1u);
  EXPECT_EQ(coded.coded()[0]->code_count(), 3);
  std::vector<int32_t> codes(1);
  coded.apply_codes(set, 4, 5, codes);
  EXPECT_THAT(codes, ElementsAre(2));
}

TEST(PrepareTest, TakesBooleansAsTheyAre) {
  const FieldSet set = set_of({boolean_field("b", std::vector<uint8_t>{1, 0, 255})});
  EXPECT_THAT(prepared(fit(set, {.rule = {.missing = MissingRule::mean}}), set),
              ElementsAre(1, 0, 0.5));
  const Preparation p = Preparation::fit(set, first(2), {});
  EXPECT_THAT(prepared(p, set_of({numbers("b", {0, 1})})), ElementsAre(0, 1));
  expect_error(ErrorKind::data, {"'b'", "7 of sample 1", "neither"}, [&] {
    (void)prepared(p, set_of({numbers("b", {0, 7})}));
  });
  expect_error(ErrorKind::data, {"'b'", "words, such as 'maybe'"}, [&] {
    (void)prepared(p, set_of({category_field("b", std::vector<int32_t>{0}, {"maybe"})}));
  });
}

TEST(PrepareTest, ScalesImagesAsTheGatherDoes) {
  HostTensor pixels(DType::uint8, {2, 2, 2});
  std::iota(pixels.span<uint8_t>().begin(), pixels.span<uint8_t>().end(), 100);
  const FieldSet set = set_of({number_field("image", std::move(pixels))});
  const Preparation p = fit(set);
  EXPECT_EQ(p.input_shape(), Shape({2, 2}));
  EXPECT_EQ(p.image_options().width, 2);
  std::vector<float> out(8);
  p.apply(set, 0, 2, out);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(out[size_t(i)], float(100 + i) * (1.0f / 255.0f));
  const Preparation standard = fit(set, {.image_scale = ScaleKind::standard});
  standard.apply(set, 0, 2, out);
  // Each of 8 products of about 45, and its sum with the shift, is rounded.
  EXPECT_NEAR(std::accumulate(out.begin(), out.end(), 0.0), 0, 8 * 2 * 47 * 0x1p-24);
}

TEST(PrepareTest, ChoosesFeaturesAndLeavesTextsOut) {
  const FieldSet set =
      set_of({numbers("a", {1, 2}), numbers("b", {3, 4}),
              text_field("note", std::string("xy"), {0, 1, 2}), numbers("y", {0.5, 1.5})});
  const Preparation all = fit(set, {.target = {"y"}});
  EXPECT_THAT(all.input_names(), ElementsAre("a", "b"));
  EXPECT_THAT(all.left_out(), ElementsAre("note"));
  EXPECT_THAT(fit(set, {.features = {"b"}, .target = {"y"}}).input_names(), ElementsAre("b"));
  const auto refuse = [&](const PrepareRules& rules, const std::string& part,
                          ErrorKind kind = ErrorKind::usage) {
    expect_error(kind, {part}, [&] { (void)fit(set, rules); });
  };
  refuse({.features = {"y"}, .target = {"y"}}, "would tell the answer");
  refuse({.features = {"a", "a"}}, "named twice");
  refuse({.features = {"note"}}, "texts, which are no features");
  refuse({.features = {"c"}}, "no field 'c'", ErrorKind::data);
  refuse({.target = {"z"}}, "no field 'z'", ErrorKind::data);
  expect_error(ErrorKind::data, {"no samples"}, [&] { (void)Preparation::fit(set, {}, {}); });
}

TEST(PrepareTest, SaysWhenALaterFieldIsAnother) {
  const Preparation p = fit(set_of({numbers("x", {1, 2, 3, 4}, {2})}));
  expect_error(ErrorKind::data, {"no field 'x'"},
               [&] { (void)prepared(p, set_of({numbers("z", {1})})); });
  expect_error(ErrorKind::data, {"'x' is [] a sample", "[2] in training"},
               [&] { (void)prepared(p, set_of({numbers("x", {1})})); });
}

TEST(TargetTest, GuessesWhatATargetIs) {
  const auto guess = [](const Field& field) { return guess_target(field, summarise(field)); };
  EXPECT_EQ(guess(numbers("y", {0, 1, 2, 0, 1, 2})), TargetKind::classes);
  EXPECT_EQ(guess(numbers("y", {0.5, 1})), TargetKind::values);
  EXPECT_EQ(guess(category_field("y", std::vector<int32_t>{0}, {"a"})), TargetKind::classes);
  std::vector<double> many, codes;
  for (int i = 0; i < 300; ++i) many.push_back(25 + i % 100), codes.push_back(i % 100);
  EXPECT_EQ(guess(numbers("y", many)), TargetKind::values);
  EXPECT_EQ(guess(numbers("y", codes)), TargetKind::classes);
  EXPECT_EQ(guess(numbers("y", {1, 2, 3, 4}, {2})), TargetKind::values);
  EXPECT_EQ(guess(numbers("y", {0, 1, 1, 0}, {2})), TargetKind::labels);
  EXPECT_EQ(guess(numbers("y", {0, 1, 0.5, 0}, {2})), TargetKind::values);
  HostTensor bits(DType::uint8, {2, 3});
  bits.span<uint8_t>()[1] = 1;
  EXPECT_EQ(guess(number_field("y", std::move(bits))), TargetKind::labels);
}

TEST(TargetTest, MapsClassesByNameOrNumber) {
  const FieldSet set = set_of({numbers("x", {1, 2, 3}), numbers("y", {7, 3, 7})});
  const Preparation p = fit(set, {.target = {"y"}});
  EXPECT_THAT(p.target()->classes, ElementsAre("3", "7"));
  std::vector<int32_t> out(3);
  p.target()->apply_classes(set, 0, 3, out);
  EXPECT_THAT(out, ElementsAre(1, 0, 1));
  const FieldSet other = set_of({numbers("y", {7, 5, kNaN})});
  expect_error(ErrorKind::data, {"'y' of sample 1", "is 5", "2 classes"},
               [&] { p.target()->apply_classes(other, 0, 2, std::span(out).first(2)); });
  expect_error(ErrorKind::data, {"'y' of sample 2", "missing"},
               [&] { p.target()->apply_classes(other, 2, 3, std::span(out).first(1)); });
  const FieldSet words = set_of(
      {numbers("x", {1, 2}), category_field("y", std::vector<int32_t>{1, 0}, {"cat", "dog"})});
  const Preparation named = fit(words, {.target = {"y"}});
  named.target()->apply_classes(words, 0, 2, std::span(out).first(2));
  EXPECT_EQ(out[0], 1);
  const FieldSet later = set_of({category_field("y", std::vector<int32_t>{0, -1}, {"fox"})});
  expect_error(ErrorKind::data, {"sample 0", "none of the 2 classes"},
               [&] { named.target()->apply_classes(later, 0, 1, std::span(out).first(1)); });
}

TEST(TargetTest, RefusesTargetsThatAreNotThere) {
  for (const double bad : {kNaN, double(INFINITY)}) {
    const FieldSet values = set_of({numbers("x", {1, 2, 3}), numbers("y", {0.5, bad, 1.5})});
    const Preparation p = Preparation::fit(values, std::vector<int64_t>{0, 2}, {.target = {"y"}});
    std::vector<double> out(3);
    expect_error(ErrorKind::data, {"'y' of sample 1", std::isnan(bad) ? "missing" : "infinite"},
                 [&] { p.target()->apply_values(values, 0, 3, out); });
    const FieldSet whole = set_of({numbers("x", {1, 2, 3}), numbers("y", {0, bad, 1})});
    expect_error(ErrorKind::data, {"'y' of sample 1"},
                 [&] { (void)fit(whole, {.target = {"y"}}); });
  }
}

TEST(TargetTest, ScalesValuesAndRestoresThem) {
  const FieldSet set =
      set_of({numbers("x", {1, 2, 3}), numbers("a", {10, 20, 60}), numbers("b", {0.5, 0.5, 2})});
  const Preparation p = fit(set, {.target = {"a", "b"}, .target_scale = NumberScale::standardise});
  EXPECT_EQ(p.target()->kind, TargetKind::values);
  EXPECT_EQ(p.target()->outputs(), 2);
  std::vector<double> out(6);
  p.target()->apply_values(set, 0, 3, out);
  EXPECT_NEAR(out[0] + out[2] + out[4], 0, 1e-12);
  p.target()->restore(out);
  EXPECT_THAT(out,
              ElementsAre(DoubleNear(10, 1e-12), DoubleNear(0.5, 1e-12), DoubleNear(20, 1e-12),
                          DoubleNear(0.5, 1e-12), DoubleNear(60, 1e-12), DoubleNear(2, 1e-12)));
}

TEST(TargetTest, TakesFieldsOfSeveralKindsSideBySide) {
  const FieldSet set =
      set_of({numbers("x", {1, 2, 3}), numbers("v", {10, 20, 60}), numbers("bit", {0, 1, 1}),
              category_field("c", std::vector<int32_t>{1, 0, 1}, {"cat", "dog"}),
              numbers("n", {7, 3, 5})});
  using enum TargetKind;
  const Preparation p = fit(set, {.target = {"c", "v", "n", "bit"},
                                  .target_kinds = {classes, values, classes, labels},
                                  .target_kind = values,
                                  .target_scale = NumberScale::min_max});
  const Target& target = *p.target();
  EXPECT_EQ(target.outputs(), 7);
  std::vector<double> out(21);
  target.apply_values(set, 0, 3, out);
  EXPECT_THAT(out, ElementsAre(0, 1, 0, 0, 0, 1, 0,    // dog, least, 7, 0
                               1, 0, 0.2, 1, 0, 0, 1,  // cat, a fifth, 3, 1
                               0, 1, 1, 0, 1, 0, 1));
  target.restore(out);
  EXPECT_DOUBLE_EQ(out[9], 20);
  EXPECT_EQ(Preparation::from_json(p.to_json(), "test"), p);
  const FieldSet later = set_of({category_field("c", std::vector<int32_t>{0}, {"fox"}),
                                 numbers("v", {1}), numbers("n", {7}), numbers("bit", {0})});
  expect_error(ErrorKind::data, {"'c' of sample 0", "none of the 2 classes"},
               [&] { target.apply_values(later, 0, 1, std::span(out).first(7)); });
}

TEST(TargetTest, FindsTheDefault) {
  EXPECT_EQ(default_target(set_of({numbers("x", {1})}), true), std::nullopt);
  EXPECT_EQ(default_target(set_of({numbers("y", {1}), numbers("a", {1})}), true), "y");
  EXPECT_EQ(default_target(set_of({numbers("b", {1}), numbers("a", {1})}), true), "a");
  EXPECT_EQ(default_target(set_of({numbers("b", {1}), numbers("a", {1})}), false), std::nullopt);
}

class PrepareJsonTest : public ::testing::Test {
 protected:
  PrepareJsonTest() {
    std::mt19937 random(2);
    std::vector<double> x, y;
    std::vector<int32_t> kinds;
    std::vector<uint8_t> truths;
    for (int i = 0; i < 5000; ++i) {
      x.push_back(i % 17 == 0 ? kNaN : double(random()) / 1e7);
      x.push_back(double(random()) * 1e-12);
      y.push_back(double(random()) / 3);
      kinds.push_back(int32_t(random() % 4) - 1);
      truths.push_back(uint8_t(random() % 2));
    }
    set_ =
        set_of({numbers("x", x, {2}), category_field("kind", kinds, {"a\"b", "caf\xc3\xa9", "z"}),
                category_field("code", kinds, {"p", "q", "r"}), boolean_field("t", truths),
                numbers("y", y)});
    rules_.rule = {.log = true, .clip = {{-1e3, 300}}, .missing = MissingRule::indicator};
    rules_.fields["code"] = {.missing = MissingRule::mean,
                             .unseen = UnseenRule::missing,
                             .coding = CategoryCoding::codes};
    rules_.target = {"y"};
    rules_.target_scale = NumberScale::standardise;
    rules_.windows = WindowRule{.window = 5, .horizon = 2, .stride = 3};
  }

  FieldSet set_;
  PrepareRules rules_;
};

// A preparation that is read back prepares every value to the same bits, in any ranges.
TEST_F(PrepareJsonTest, GivesTheSameBitsAfterARoundTrip) {
  const Preparation p = fit(set_, rules_);
  const Preparation again = Preparation::from_json(p.to_json(), "model");
  EXPECT_EQ(again, p);
  EXPECT_EQ(again.to_json(), p.to_json());
  EXPECT_EQ(again.input_shape(), Shape({5, p.width()}));
  const auto width = size_t(p.width());
  std::vector<float> whole(5000 * width), parts(5000 * width);
  p.apply(set_, 0, 5000, whole);
  for (int64_t at = 0; at < 5000; at += 777) {
    const int64_t end = std::min<int64_t>(5000, at + 777);
    again.apply(set_, at, end,
                std::span(parts).subspan(size_t(at) * width, size_t(end - at) * width));
  }
  EXPECT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)), 0);
}

TEST_F(PrepareJsonTest, RefusesWhatItDidNotWrite) {
  const std::string good = fit(set_, rules_).to_json();
  const auto refuse = [](const std::string& text, const std::vector<std::string>& parts) {
    expect_error(ErrorKind::model, parts, [&] { (void)Preparation::from_json(text, "m.st"); });
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  refuse("", {"m.st: ", "not a JSON object"});
  refuse("[]", {"not a JSON object"});
  refuse(good.substr(0, good.size() / 2), {"not a JSON object"});
  refuse(std::string(1000, '[') + std::string(1000, ']'), {"too many levels"});
  refuse(with("\"version\":1", "\"version\":2"), {"version", "newer"});
  refuse(with("\"version\":1", "\"version\":1,\"version\":1"), {"'version' is there twice"});
  refuse(with("\"version\":1", "\"version\":1,\"evil\":1"), {"'evil'", "not a key"});
  refuse(with("\"log\":true", "\"log\":1"), {"features[0]", "'log'", "neither true nor false"});
  refuse(with("\"shape\":[2]", "\"shape\":[3]"), {"features[0]", "'shift'", "3 belong"});
  refuse(with("\"shape\":[2]", "\"shape\":[99999999999]"), {"'shape'", "not a shape"});
  refuse(with("\"shape\":[2]", "\"shape\":[1,1,1,1,1,1,1]"), {"'shape'", "dimensions"});
  refuse(with("\"type\":\"number\"", "\"type\":\"code\""), {"'type' is 'code'"});
  refuse(with("\"missing\":\"indicator\"", "\"missing\":\"refuse\""), {"'fill'", "0 belong"});
  refuse(with("\"shift\":[", "\"shift\":[null,"), {"'shift'"});
  refuse(with("\"window\":5", "\"window\":0"), {"windows", "'window'", "whole number from 1"});
  refuse(with("\"fields\":[\"y\"]", "\"fields\":[]"), {"target", "'fields'"});
  // Cut anywhere, it is refused.
  for (size_t size = 0; size < good.size(); size += 97) refuse(good.substr(0, size), {"m.st"});
}

}  // namespace
}  // namespace ridgeline::data
