#include "ridgeline/core/result_mark.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ridgeline {
namespace {

TEST(ResultMark, TellsOurJsonFromOtherJson) {
  for (const auto& document : {nlohmann::json{{"a", 1}}, nlohmann::json{1, 2},
                               nlohmann::json::array(), nlohmann::json()}) {
    const std::string text = document.dump(2) + "\n";
    EXPECT_FALSE(has_json_mark(text)) << text;
    const std::string marked = with_mark(text);
    EXPECT_TRUE(has_json_mark(marked)) << text;
    EXPECT_EQ(nlohmann::json::parse(marked), document);
  }
  for (const char* text : {"", " ", "{", "{ ", "{ }", "{\"a\": 1} \n", "text \n", "\n"}) {
    EXPECT_FALSE(has_json_mark(text)) << text;
  }
}

TEST(ResultMark, TellsOurPicturesFromOthers) {
  const std::string picture = "<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>\n";
  EXPECT_FALSE(has_svg_mark(picture));
  EXPECT_TRUE(has_svg_mark(with_mark(picture)));
  EXPECT_FALSE(has_json_mark(with_mark(picture)));
}

TEST(ResultMark, OtherTextStaysAsItIs) {
  for (const char* text : {"", "index,label\n0,1\n", "{\"index\":0}\n", "# config\n"}) {
    EXPECT_EQ(with_mark(text), text);
  }
}

}  // namespace
}  // namespace ridgeline
