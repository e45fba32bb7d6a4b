#include "ridgeline/engine/plan/batch_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using testing::small_config;
using testing::small_set;

TEST(BatchAdvice, NamesAMeasuredBatchAndTheWholeSet) {
  const BatchAdvice advice = advise_batch(small_config({"run.tune=false"}), small_set(203));
  ASSERT_GE(advice.points.size(), 3u);
  for (size_t i = 0; i < advice.points.size(); ++i) {
    EXPECT_EQ(advice.points[i].batch, int64_t{1} << i);
    EXPECT_GT(advice.points[i].seconds, 0);
  }
  EXPECT_LE(advice.points.back().batch, 203);
  EXPECT_GT(advice.points.back().memory, advice.points.front().memory);
  const auto rate = [](const BatchPoint& point) { return point.inputs_per_second(); };
  const BatchPoint best = *std::ranges::max_element(advice.points, {}, rate);
  EXPECT_EQ(advice.fastest, best.batch);
  EXPECT_LE(advice.enough, advice.fastest);
  // 203 images of 36 pixels and a tiny net fit in any machine that runs this.
  EXPECT_TRUE(advice.whole_set);
  EXPECT_EQ(advice.largest, 203);
  EXPECT_THAT(to_text(advice), HasSubstr("the whole training set of 203 fits"));
  EXPECT_EQ(nlohmann::json::parse(to_json_text(advice))["points"].size(), advice.points.size());
}

}  // namespace
}  // namespace ridgeline::engine
