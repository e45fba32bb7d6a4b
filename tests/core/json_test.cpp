#include "ridgeline/core/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace ridgeline {
namespace {

TEST(Json, NamesThatAreNotUtf8AreWritten) {
  const std::string text = dump_json({{"file", "caf\xe9"}, {"k\xff", 1}}, -1);
  EXPECT_EQ(text, "{\"file\":\"caf\xef\xbf\xbd\",\"k\xef\xbf\xbd\":1}");
  EXPECT_FALSE(parse_json(text).is_discarded());
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](int depth) {
    return std::string(size_t(depth), '[') + std::string(size_t(depth), ']');
  };
  EXPECT_TRUE(parse_json(nested(32)).is_array());
  EXPECT_TRUE(parse_json(nested(33)).is_discarded());
  EXPECT_TRUE(parse_json(std::string(10'000'000, '[')).is_discarded());
  EXPECT_FALSE(nests_deeper("[[],[],{\"a\":[1]}]", 3));
  EXPECT_TRUE(nests_deeper("[[],[],{\"a\":[1]}]", 2));
  EXPECT_FALSE(nests_deeper("[\"[[[\\\"[[[\",\"{{\"]", 1));  // brackets in texts nest nothing
  EXPECT_TRUE(parse_json("").is_discarded());
  EXPECT_TRUE(parse_json("{").is_discarded());
}

}  // namespace
}  // namespace ridgeline
