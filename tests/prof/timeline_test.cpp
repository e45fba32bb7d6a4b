#include "ridgeline/prof/timeline.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace ridgeline::prof {
namespace {

using nlohmann::json;

Timeline sample() {
  Timeline timeline;
  const auto kernels = timeline.lane(0, "kernels"), thread = timeline.lane(0, "thread \"1\"");
  const auto other = timeline.lane(1, "kernels");
  timeline.add({kernels, "inner", "kernel", 1e-3, 1e-3, {{"flops", 12.5}}});
  timeline.add({kernels, "outer\n", "step", 1e-3, 5e-3, {}});
  timeline.add({thread, "region", "thread", 2.5e-6, 0.25e-6, {{"bad", NAN}}});
  timeline.add({other, "elsewhere", "kernel", 0, 1, {}});
  return timeline;
}

TEST(Timeline, FieldsAndUnitsOfTheTraceEventFormat) {
  const json document = json::parse(sample().to_json());
  EXPECT_EQ(document["displayTimeUnit"], "ns");
  std::map<std::string, json> spans;
  int names = 0;
  for (const json& event : document["traceEvents"]) {
    ASSERT_TRUE(event["pid"].is_number_integer() && event["tid"].is_number_integer());
    if (event["ph"] == "M") {
      ++names;
      EXPECT_TRUE(event["name"] == "process_name" || event["name"] == "thread_name");
      EXPECT_TRUE(event["args"]["name"].is_string());
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    for (const char* field : {"name", "cat"}) ASSERT_TRUE(event[field].is_string());
    for (const char* field : {"ts", "dur"}) ASSERT_TRUE(event[field].is_number());
    EXPECT_GE(event["dur"], 0);
    spans[event["name"]] = event;
  }
  EXPECT_EQ(names, 2 + 3);  // two ranks, three lanes
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_DOUBLE_EQ(spans["inner"]["ts"], 1000);  // microseconds
  EXPECT_DOUBLE_EQ(spans["inner"]["dur"], 1000);
  EXPECT_DOUBLE_EQ(spans["inner"]["args"]["flops"], 12.5);
  EXPECT_DOUBLE_EQ(spans["region"]["ts"], 2.5);
  EXPECT_DOUBLE_EQ(spans["region"]["dur"], 0.25);
  EXPECT_TRUE(spans["region"]["args"]["bad"].is_null());
  EXPECT_EQ(spans["elsewhere"]["pid"], 1);
  EXPECT_NE(spans["inner"]["tid"], spans["region"]["tid"]);
}

TEST(Timeline, OuterSpansComeFirst) {
  const json document = json::parse(sample().to_json());
  std::vector<std::string> order;
  for (const json& event : document["traceEvents"]) {
    if (event["ph"] == "X" && event["pid"] == 0 && event["tid"] == 0)
      order.push_back(event["name"]);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"outer\n", "inner"}));
}

}  // namespace
}  // namespace ridgeline::prof
