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

TEST_F(Cache, KeepsKernelsAndPlansForItsEnvironmentOnly) {
  TuningCache cache(file_, "machine one");
  cache.set_kernel_seconds("kernel | work", 1.5e-5);
  cache.set_plan("program", {{"a", "b"}, 0.25});
  cache.set_plan("uncertain", {{"a"}, 0.25, 1'700'000'000});
  cache.save();

  const TuningCache again(file_, "machine one");
  EXPECT_EQ(again.kernel_seconds("kernel | work"), 1.5e-5);
  ASSERT_TRUE(again.plan("program"));
  EXPECT_EQ(again.plan("program")->kernels, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(again.plan("program")->seconds, 0.25);
  EXPECT_EQ(again.plan("program")->disturbed, 0);
  EXPECT_EQ(again.plan("uncertain")->disturbed, 1'700'000'000);
  EXPECT_FALSE(again.kernel_seconds("kernel | other work"));

  const TuningCache other(file_, "machine two");
  EXPECT_FALSE(other.kernel_seconds("kernel | work"));
  EXPECT_FALSE(other.plan("program"));
}

TEST_F(Cache, MergesWithWhatAnotherProcessWrote) {
  TuningCache one(file_, "machine"), two(file_, "machine");
  one.set_kernel_seconds("one", 1);
  two.set_kernel_seconds("two", 2);
  one.save();
  two.save();
  const TuningCache both(file_, "machine");
  EXPECT_TRUE(both.kernel_seconds("one"));
  EXPECT_TRUE(both.kernel_seconds("two"));
}

TEST_F(Cache, IgnoresCorruptForeignAndOldFiles) {
  fs::create_directories(file_.parent_path());
  for (const std::string text :
       {"", "{", "[]", "null", "{\"version\": 99}", "{\"version\": 1, \"environments\": 3}",
        "{\"version\": \"x\"}", "\xff\xfe\x00garbage"}) {
    write(text);
    TuningCache cache(file_, "machine");
    EXPECT_FALSE(cache.kernel_seconds("kernel")) << text;
    cache.set_kernel_seconds("kernel", 1);
    cache.save();
    EXPECT_EQ(TuningCache(file_, "machine").kernel_seconds("kernel"), 1) << text;
  }
}

TEST_F(Cache, WrongTypesInsideReadAsEmpty) {
  TuningCache cache(file_, "machine");
  cache.set_kernel_seconds("kernel", 1);
  cache.set_plan("program", {{"a"}, 1.0});
  cache.save();
  std::string text;
  std::getline(std::ifstream(file_), text, '\0');
  const std::string plans = "\"plans\":";
  text.replace(text.find(plans), plans.size(), "\"plans\":7,\"x\":");
  write(text);
  EXPECT_FALSE(TuningCache(file_, "machine").plan("program"));
}

// Earlier versions wrote "rows" for "kernels", and some kernels had other names.
TEST_F(Cache, ReadsWhatEarlierVersionsWrote) {
  TuningCache cache(file_, "machine");
  cache.set_kernel_seconds("kernel", 1);
  cache.set_plan("program", {{"cpu.gather.simd", "cpu.rnn.items"}, 2.0});
  cache.save();
  std::string text;
  std::getline(std::ifstream(file_), text, '\0');
  const std::string now = "\"kernels\":", before = "\"rows\":";
  int replaced = 0;
  for (size_t at = text.find(now); at != std::string::npos; at = text.find(now)) {
    text.replace(at, now.size(), before);
    ++replaced;
  }
  EXPECT_EQ(replaced, 2);
  write(text);
  const TuningCache old(file_, "machine");
  EXPECT_EQ(old.kernel_seconds("kernel"), 1);
  ASSERT_TRUE(old.plan("program"));
  EXPECT_EQ(old.plan("program")->kernels,
            (std::vector<std::string>{"cpu.gather.simd", "cpu.rnn.batch_parallel"}));
  old.save();
  const TuningCache again(file_, "machine");
  EXPECT_EQ(again.kernel_seconds("kernel"), 1);
  EXPECT_TRUE(again.plan("program"));
  std::getline(std::ifstream(file_), text, '\0');
  EXPECT_EQ(text.find(before), std::string::npos);
}

TEST_F(Cache, UnwritablePlaceIsNotAnError) {
  std::ofstream(folder_ / "file") << "x";
  TuningCache cache(folder_ / "file" / "tuning.json", "machine");
  cache.set_kernel_seconds("kernel", 1);
  cache.save();
  EXPECT_EQ(cache.kernel_seconds("kernel"), 1);
}

TEST_F(Cache, DropsTheLeastRecentlyUsedEnvironments) {
  for (int i = 0; i < 40; ++i) {
    TuningCache cache(file_, "machine " + std::to_string(i));
    cache.set_kernel_seconds("kernel", 1);
    cache.save();
  }
  EXPECT_LT(fs::file_size(file_), 4000u);
}

}  // namespace
}  // namespace ridgeline
