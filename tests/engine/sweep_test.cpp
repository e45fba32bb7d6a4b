#include "ridgeline/engine/sweep/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ridgeline/core/error.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

SweepPoint point(std::vector<std::string> values, double accuracy, const std::string& error = {}) {
  SweepPoint made;
  made.values = std::move(values);
  made.report.test.accuracy = accuracy;
  made.report.test.targets = 10;
  made.error = error;
  return made;
}

Sweep two_keys() {
  Sweep sweep;
  sweep.keys = {"train.epochs", "train.optimizer.lr"};
  sweep.choices = {{"1", "2"}, {"0.001", "0.1", "10"}};
  sweep.points = {point({"1", "0.001"}, 0.5),
                  point({"1", "0.1"}, 0.8),
                  point({"1", "10"}, 0, "the loss is nan, \"here\""),
                  point({"2", "0.001"}, 0.6),
                  point({"2", "0.1"}, 0.9),
                  point({"2", "10"}, 0.1)};
  return sweep;
}

TEST(Sweep, SplitsAtOuterCommasOnly) {
  EXPECT_THAT(split_values("a,b,c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split_values("{type=\"sgd\",lr=1},{type=\"adam\"}"),
              ElementsAre("{type=\"sgd\",lr=1}", "{type=\"adam\"}"));
  EXPECT_THAT(split_values("\"a,b\",[1,2]"), ElementsAre("\"a,b\"", "[1,2]"));
  EXPECT_THAT(split_values(""), ElementsAre(""));
  EXPECT_THAT(split_values(" 1, 2 ,\" a\""), ElementsAre("1", "2", "\" a\""));
  EXPECT_THAT(split_values("-1..2,8"), ElementsAre("-1", "0", "1", "2", "8"));
  EXPECT_THAT(split_values("../x,\"1..2\",1..x"), ElementsAre("../x", "\"1..2\"", "1..x"));
  EXPECT_THROW(split_values("3..1"), Error);
}

TEST(Sweep, CsvQuotesAndLeavesFailuresEmpty) {
  const std::string csv = to_csv(two_keys());
  EXPECT_THAT(csv, HasSubstr("train.epochs,train.optimizer.lr,accuracy,"));
  EXPECT_THAT(csv, HasSubstr("1,0.1,0.8,"));
  EXPECT_THAT(csv, HasSubstr("1,10,,,,,,\"the loss is nan, \"\"here\"\"\"\n"));
  EXPECT_TRUE(is_sweep_csv(csv));
  // Values have other scores than classes.
  Sweep values = two_keys();
  for (SweepPoint& each : values.points) {
    each.report.test.accuracy = NAN;
    each.report.test.scores.r2 = 0.25;
  }
  EXPECT_THAT(to_csv(values), HasSubstr("train.optimizer.lr,accuracy,loss,r2,"));
  EXPECT_THAT(to_table(values), HasSubstr("r2"));
  EXPECT_THAT(to_table(values), Not(HasSubstr("accuracy")));
}

TEST(Sweep, ChartHasALinePerOtherKey) {
  const Chart chart = to_chart(two_keys(), "accuracy");
  EXPECT_EQ(chart.x_title, "train.optimizer.lr");
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_EQ(chart.series[1].name, "epochs=2");
  EXPECT_THAT(chart.series[1].y, ElementsAre(0.6, 0.9, 0.1));
  EXPECT_TRUE(std::isnan(chart.series[0].y[2]));
}

TEST(Sweep, TableAndJsonHaveEveryPoint) {
  EXPECT_THAT(to_table(two_keys()), HasSubstr("diverged"));
  const auto json = nlohmann::json::parse(to_json_text(two_keys()));
  ASSERT_EQ(json["points"].size(), 6u);
  EXPECT_EQ(json["points"][1]["set"]["train.optimizer.lr"], "0.1");
  EXPECT_EQ(json["points"][4]["report"]["accuracy"], 0.9);
  EXPECT_TRUE(json["points"][2].contains("error"));
}

TEST(Sweep, NoSeveralValuesIsUsage) {
  EXPECT_THROW(sweep("none.toml", {"train.epochs=3"}, {}), Error);
  EXPECT_THROW(sweep("none.toml", {"train.epochs"}, {}), Error);
}

TEST(Chart, IsWellFormedAndEscapes) {
  Chart chart;
  chart.title = "a < b & \"c\"";
  chart.x = {"1", "100"};
  chart.series = {{"s", {1, 2}}};
  const std::string svg = to_svg(chart);
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, ::testing::StartsWith("<svg"));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("<polyline"));
}

TEST(Chart, EmptyAndConstantDataHaveADefinedResult) {
  Chart chart;
  EXPECT_THAT(to_svg(chart), HasSubstr("</svg>"));
  chart.x = {"a"};
  chart.series = {{"", {3}}};
  EXPECT_THAT(to_svg(chart), ::testing::Not(HasSubstr("nan")));
}

TEST(Chart, BarsStandOnZero) {
  Chart chart;
  chart.bars = true;
  chart.x = {"a", "b", "c"};
  chart.series = {{"", {900, 1000, NAN}}};
  const std::string svg = to_svg(chart);
  EXPECT_THAT(svg, HasSubstr(">0</text>"));
  EXPECT_THAT(svg, HasSubstr(">900</text>"));
  size_t bars = 0;
  for (size_t at = svg.find("<rect"); at != svg.npos; at = svg.find("<rect", at + 1)) ++bars;
  EXPECT_EQ(bars, 2u);
}

}  // namespace
}  // namespace ridgeline::engine
