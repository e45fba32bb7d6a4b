#include "ridgeline/engine/scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace ridgeline::engine {
namespace {

// By definition: the share of pairs of a positive and a negative sample in the right order.
double area_by_pairs(const std::vector<float>& scores, const std::vector<bool>& positive) {
  double right = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (!positive[i] || positive[j]) continue;
      right += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
      pairs += 1;
    }
  }
  return right / pairs;
}

TEST(Scores, AreaCountsPairsAndHalfOfTies) {
  std::mt19937 draw(1);
  for (const int values : {2, 5, 1000}) {  // few values have many ties
    std::vector<float> scores;
    std::vector<bool> positive;
    for (int i = 0; i < 301; ++i) {
      scores.push_back(float(int(draw() % unsigned(values)) - values / 2) / 7.0f);
      positive.push_back(draw() % 3 == 0);
    }
    EXPECT_NEAR(area_under_curve(scores, positive), area_by_pairs(scores, positive), 1e-12);
  }
  for (const int samples : {100, 5000}) {  // few and many are sorted in different ways
    std::vector<float> scores{-INFINITY, INFINITY};
    std::vector<bool> positive{true, false};
    while (int(scores.size()) < samples) {
      const float value = std::ldexp(float(draw()), int(draw() % 200) - 150);  // denormal to large
      scores.push_back(draw() % 2 == 0 ? value : -value);
      positive.push_back(draw() % 3 == 0);
    }
    EXPECT_NEAR(area_under_curve(scores, positive), area_by_pairs(scores, positive), 1e-12);
  }
  EXPECT_TRUE(std::isnan(area_under_curve(std::vector<float>{1, 2}, {true, true})));
  EXPECT_EQ(area_under_curve(std::vector<float>{-0.0f, 0.0f}, {true, false}), 0.5);
  EXPECT_TRUE(std::isnan(area_under_curve(std::vector<float>{NAN, 0}, {true, false})));
}

TEST(Scores, ClassesAsWorkedOutByHand) {
  // Predicted classes 0, 0, 1, 1 for the true classes 0, 1, 1, 1; class 2 neither occurs nor is
  // predicted.
  const std::vector<float> outputs{.8f, .1f, .1f, .6f, .3f, .1f, .2f, .7f, .1f, .1f, .8f, .1f};
  const std::vector<int32_t> labels{0, 1, 1, 1};
  const Scores scores = score_classes(outputs, labels, 3);
  EXPECT_NEAR(scores.f1, (2.0 / 3 + 0.8) / 2, 1e-12);  // precision and recall 1/2, 1; 1, 2/3
  EXPECT_NEAR(scores.auc, 1, 1e-12);
  EXPECT_TRUE(std::isnan(scores.top5));
  EXPECT_TRUE(std::isnan(scores.mse));
  const auto each = score_each_class(outputs, labels, 3);
  EXPECT_NEAR(each[0].precision, 0.5, 1e-12);
  EXPECT_NEAR(each[1].recall, 2.0 / 3, 1e-12);
  EXPECT_EQ(each[2].samples, 0);
}

TEST(Scores, TopFiveTakesTheFirstOfEquals) {
  const std::vector<float> outputs(14, 0.5f);  // two samples of seven equal outputs
  EXPECT_EQ(score_classes(outputs, std::vector<int32_t>{4, 5}, 7).top5, 0.5);
  EXPECT_EQ(score_classes(outputs, std::vector<int32_t>{0, 4}, 7).top5, 1.0);
}

TEST(Scores, LabelsAreCountedByThemselves) {
  const std::vector<float> outputs{2, -1, -1, 3, 1, 1}, targets{1, 0, 0, 1, 0, 1};
  const Scores scores = score_labels(outputs, targets, 2, 0);
  EXPECT_NEAR(scores.f1, (2.0 / 3 + 1) / 2, 1e-12);
  EXPECT_NEAR(scores.auc, 1, 1e-12);
}

TEST(Scores, ValuesInTheUnitsOfTheData) {
  const std::vector<float> outputs{2, 10, 4, 10}, targets{1, 10, 5, 10};
  const Scores plain = score_values(outputs, targets, 2);
  EXPECT_NEAR(plain.mse, (1.0 + 0) / 2, 1e-12);
  EXPECT_NEAR(plain.mae, (1.0 + 0) / 2, 1e-12);
  EXPECT_NEAR(plain.r2, ((1 - 2.0 / 8) + 1) / 2,
              1e-12);  // constant targets that are met count as 1
  const Scores scaled = score_values(outputs, targets, 2, std::vector<double>{10, 1});
  EXPECT_NEAR(scaled.mse, 100.0 / 2, 1e-9);
  EXPECT_NEAR(scaled.mae, 10.0 / 2, 1e-12);
  EXPECT_NEAR(scaled.r2, plain.r2, 1e-12);
  EXPECT_TRUE(std::isnan(plain.f1));
}

TEST(Scores, CalibrationHasTheMeansOfItsBins) {
  const std::vector<float> outputs{.95f, .05f, .45f, .55f, .92f, .08f, 1.0f, 0.0f};
  const auto bins = calibration(outputs, std::vector<int32_t>{0, 0, 1, 0}, 2);
  ASSERT_EQ(bins.size(), 10u);
  EXPECT_EQ(bins[9].samples, 3);
  EXPECT_NEAR(bins[9].accuracy, 2.0 / 3, 1e-12);
  EXPECT_NEAR(bins[9].confidence, (0.95 + 0.92 + 1) / 3, 1e-6);
  EXPECT_EQ(bins[5].samples, 1);
  EXPECT_EQ(bins[5].accuracy, 0);
}

// Whole weights stand for repeated samples.
TEST(Scores, WeightsCountLikeRepeatedSamples) {
  std::mt19937 draw(3);
  constexpr int kWidth = 7;
  std::vector<float> weights, outputs, targets, repeated_outputs, repeated_targets;
  std::vector<int32_t> labels, repeated_labels;
  for (int i = 0; i < 40; ++i) {
    std::vector<float> row, values;
    for (int c = 0; c < kWidth; ++c) {
      row.push_back(float(draw() % 9) / 8.0f);  // with ties
      values.push_back(float(draw() % 2));
    }
    const auto label = int32_t(draw() % kWidth);
    const auto times = draw() % 4;
    weights.push_back(float(times));
    const auto append = [&](std::vector<float>& o, std::vector<float>& t, std::vector<int32_t>& l) {
      o.insert(o.end(), row.begin(), row.end());
      t.insert(t.end(), values.begin(), values.end());
      l.push_back(label);
    };
    append(outputs, targets, labels);
    for (unsigned k = 0; k < times; ++k) {
      append(repeated_outputs, repeated_targets, repeated_labels);
    }
  }
  const auto near = [](const Scores& a, const Scores& b) {
    const std::pair<double, double> pairs[] = {{a.top5, b.top5}, {a.f1, b.f1},   {a.auc, b.auc},
                                               {a.mse, b.mse},   {a.mae, b.mae}, {a.r2, b.r2}};
    for (const auto& [x, y] : pairs) {
      EXPECT_EQ(std::isnan(x), std::isnan(y));
      if (!std::isnan(x)) {
        EXPECT_NEAR(x, y, 1e-12);
      }
    }
  };
  near(score_classes(outputs, labels, kWidth, weights),
       score_classes(repeated_outputs, repeated_labels, kWidth));
  near(score_labels(outputs, targets, kWidth, 0.5, weights),
       score_labels(repeated_outputs, repeated_targets, kWidth, 0.5));
  near(score_values(outputs, targets, kWidth, {}, weights),
       score_values(repeated_outputs, repeated_targets, kWidth));
  const std::vector<float> ones(repeated_labels.size(), 1.0f);
  EXPECT_NEAR(accuracy_of(outputs, labels, kWidth, weights),
              accuracy_of(repeated_outputs, repeated_labels, kWidth, ones), 1e-12);
}

}  // namespace
}  // namespace ridgeline::engine
