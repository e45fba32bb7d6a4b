#include "ridgeline/engine/train/checkpoint.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace ridgeline::engine {
namespace {

Config texts(const char* train, const char* label) {
  return parse_config(
      fmt::format("[data]\nname = \"texts\"\ntext = {{ train = \"{}\", columns = \"body\", label = "
                  "\"{}\", length = 16 }}\n"
                  "[model]\nlayers = [{{ type = \"linear\", out = 4 }}]\n",
                  train, label),
      "test.toml");
}

TEST(ChangedSettings, TheFolderOfTextsMayChangeButNotTheirContents) {
  const Config kept = texts("train.csv", "topic");
  EXPECT_EQ(changed_settings(kept, kept), "");
  EXPECT_EQ(changed_settings(kept, texts("renamed.csv", "topic")), "");
  EXPECT_NE(changed_settings(kept, texts("train.csv", "kind")).find("data.text"),
            std::string::npos);
}

}  // namespace
}  // namespace ridgeline::engine
