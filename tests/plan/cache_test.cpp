#include "ridgeline/plan/cache.h"

#include <gtest/gtest.h>

#include <fstream>

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

class Cache : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& text) { std::ofstream(file_) << text; }

  const fs::path folder_ =
      fs::path(::testing::TempDir()) /
      ("cache_test_" +
       std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
  const fs::path file_ = folder_ / "sub" / "tuning.json";
};

TEST_F(Cache, KeepsRowsAndPlansForItsEnvironmentOnly) {
  TuningCache cache(file_, "machine one");
  cache.set_row_seconds("row | work", 1.5e-5);
  cache.set_plan("program", {{"a", "b"}, 0.25});
  cache.save();

  const TuningCache again(file_, "machine one");
  EXPECT_EQ(again.row_seconds("row | work"), 1.5e-5);
  ASSERT_TRUE(again.plan("program"));
  EXPECT_EQ(again.plan("program")->rows, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(again.plan("program")->seconds, 0.25);
  EXPECT_FALSE(again.row_seconds("row | other work"));

  const TuningCache other(file_, "machine two");
  EXPECT_FALSE(other.row_seconds("row | work"));
  EXPECT_FALSE(other.plan("program"));
}

TEST_F(Cache, MergesWithWhatAnotherProcessWrote) {
  TuningCache one(file_, "machine"), two(file_, "machine");
  one.set_row_seconds("one", 1);
  two.set_row_seconds("two", 2);
  one.save();
  two.save();
  const TuningCache both(file_, "machine");
  EXPECT_TRUE(both.row_seconds("one"));
  EXPECT_TRUE(both.row_seconds("two"));
}

TEST_F(Cache, IgnoresCorruptForeignAndOldFiles) {
  fs::create_directories(file_.parent_path());
  for (const std::string text :
       {"", "{", "[]", "null", "{\"version\": 99}", "{\"version\": 1, \"environments\": 3}",
        "{\"version\": \"x\"}", "\xff\xfe\x00garbage"}) {
    write(text);
    TuningCache cache(file_, "machine");
    EXPECT_FALSE(cache.row_seconds("row")) << text;
    cache.set_row_seconds("row", 1);
    cache.save();
    EXPECT_EQ(TuningCache(file_, "machine").row_seconds("row"), 1) << text;
  }
}

TEST_F(Cache, WrongTypesInsideReadAsEmpty) {
  TuningCache cache(file_, "machine");
  cache.set_row_seconds("row", 1);
  cache.set_plan("program", {{"a"}, 1.0});
  cache.save();
  std::string text;
  std::getline(std::ifstream(file_), text, '\0');
  const std::string rows = "\"plans\":";
  text.replace(text.find(rows), rows.size(), "\"plans\":7,\"x\":");
  write(text);
  EXPECT_FALSE(TuningCache(file_, "machine").plan("program"));
}

TEST_F(Cache, UnwritablePlaceIsNotAnError) {
  std::ofstream(folder_ / "file") << "x";
  TuningCache cache(folder_ / "file" / "tuning.json", "machine");
  cache.set_row_seconds("row", 1);
  cache.save();
  EXPECT_EQ(cache.row_seconds("row"), 1);
}

TEST_F(Cache, DropsTheLeastRecentlyUsedEnvironments) {
  for (int i = 0; i < 40; ++i) {
    TuningCache cache(file_, "machine " + std::to_string(i));
    cache.set_row_seconds("row", 1);
    cache.save();
  }
  EXPECT_LT(fs::file_size(file_), 4000u);
}

}  // namespace
}  // namespace ridgeline
