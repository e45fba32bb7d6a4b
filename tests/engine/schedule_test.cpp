// Learning rates over a run: where a cosine ends, and what is refused or reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>

#include "ridgeline/engine/train/train.h"
#include "tests/engine/small_run.h"
#include "tests/nn/expect_error.h"

namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using testing::quiet;
using testing::slurp;
using testing::small_config;
using testing::TempFolder;

TEST(Schedule, ACosineEndsWithTheRunWhateverEndsThat) {
  const TempFolder folder;
  const auto last_rate = [&](const std::vector<std::string>& sets, const char* out) {
    std::vector<std::string> all{"train.schedule={type=\"cosine\",min_factor=0.25}",
                                 "train.log_steps=1"};
    all.insert(all.end(), sets.begin(), sets.end());
    train(small_config(all), quiet(folder / out));
    std::istringstream lines(slurp(folder / out / "metrics.jsonl"));
    double rate = 0;
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json["event"] == "train") rate = json["lr"];
    }
    return rate;
  };
  const auto cosine = [](double part) {
    return 0.01 * (0.25 + 0.75 * 0.5 * (1 + std::cos(std::numbers::pi * part)));
  };
  EXPECT_NEAR(last_rate({"train.epochs=2"}, "epochs"), cosine(25.0 / 26), 1e-15);
  EXPECT_NEAR(last_rate({"train.max_steps=20"}, "steps"), cosine(19.0 / 20), 1e-15);
  EXPECT_NEAR(last_rate({"train.max_steps=1000"}, "both"), cosine(51.0 / 52), 1e-15);
}

TEST(Schedule, ACosineIsLongerThanItsWarmUp) {
  const TempFolder folder;
  test::expect_error(
      ErrorKind::usage,
      {"the cosine ends after 26 steps (2 epochs of 13 steps), before its warm-up of 26 does"}, [] {
        train(small_config({"train.schedule={type=\"cosine\",epochs=2,warmup_steps=26}"}), quiet());
      });
  // A run that ends in its warm-up never reaches its cosine: this is reported, and is no error.
  ::testing::internal::CaptureStderr();
  TrainOptions options = quiet();
  train(small_config({"train.schedule={type=\"cosine\",warmup_steps=26}", "train.max_steps=5"}),
        options);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the run's 5 steps end within the warm-up of 26 steps"));
}

TEST(Schedule, SaysWhenTheCosineIsAnother) {
  const TempFolder folder;
  for (const bool fixed : {false, true}) {
    const std::string schedule =
        fixed ? "train.schedule={type=\"cosine\",epochs=4}" : "train.schedule={type=\"cosine\"}";
    const auto out = folder / (fixed ? "fixed" : "run");
    train(small_config({schedule, "train.max_steps=5"}), quiet(out));
    TrainOptions options = quiet(out);
    options.resume = true;
    ::testing::internal::CaptureStderr();
    train(small_config({schedule, "train.max_steps=9"}), options);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("ends with the run") != std::string::npos, !fixed) << said;
  }
}

}  // namespace
}  // namespace ridgeline::engine
