#include "ridgeline/nn/schedule.h"

#include <gtest/gtest.h>

#include "tests/nn/expect_error.h"

namespace ridgeline::nn {
namespace {

constexpr RunLength kRun{10, 50};  // five epochs of ten steps

TEST(Schedule, ConstantStays) {
  for (const int64_t step : {0, 1, 49, 1000}) EXPECT_EQ(lr({}, 0.1, step, kRun), 0.1);
}

TEST(Schedule, WarmUpReachesTheFullRateAtItsLastStep) {
  Schedule schedule;
  schedule.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(lr(schedule, 0.8, 0, kRun), 0.2);
  EXPECT_DOUBLE_EQ(lr(schedule, 0.8, 1, kRun), 0.4);
  EXPECT_DOUBLE_EQ(lr(schedule, 0.8, 3, kRun), 0.8);
  EXPECT_DOUBLE_EQ(lr(schedule, 0.8, 4, kRun), 0.8);
}

TEST(Schedule, StepCutsByStepsOrEpochs) {
  Schedule schedule;
  schedule.kind = ScheduleKind::step;
  schedule.every = {3, false};
  schedule.factor = 0.5;
  EXPECT_DOUBLE_EQ(lr(schedule, 1, 2, kRun), 1);
  EXPECT_DOUBLE_EQ(lr(schedule, 1, 3, kRun), 0.5);
  EXPECT_DOUBLE_EQ(lr(schedule, 1, 5, kRun), 0.5);
  EXPECT_DOUBLE_EQ(lr(schedule, 1, 6, kRun), 0.25);
  schedule.every = {2, true};
  EXPECT_DOUBLE_EQ(lr(schedule, 1, 19, kRun), 1);
  EXPECT_DOUBLE_EQ(lr(schedule, 1, 20, kRun), 0.5);
  EXPECT_DOUBLE_EQ(lr(schedule, 1, 40, kRun), 0.25);
}

TEST(Schedule, CosineFallsFromOneToItsLeast) {
  Schedule schedule;
  schedule.kind = ScheduleKind::cosine;
  schedule.min_factor = 0.1;
  EXPECT_DOUBLE_EQ(lr(schedule, 1, 0, kRun), 1);
  EXPECT_NEAR(lr(schedule, 1, 25, kRun), 0.55, 1e-15);  // halfway: the mean of 1 and 0.1
  EXPECT_NEAR(lr(schedule, 1, 50, kRun), 0.1, 1e-15);
  EXPECT_NEAR(lr(schedule, 1, 5000, kRun), 0.1, 1e-15);
  schedule.total = {2, true};
  EXPECT_NEAR(lr(schedule, 1, 10, kRun), 0.55, 1e-15);
  schedule.warmup_steps = 10;  // what is left is ten steps long
  EXPECT_NEAR(lr(schedule, 1, 15, kRun), 0.55, 1e-15);
  EXPECT_NEAR(lr(schedule, 1, 9, kRun), 1, 1e-15);
  schedule.total = {};  // the rest of the run: forty steps
  EXPECT_NEAR(lr(schedule, 1, 30, kRun), 0.55, 1e-15);
  EXPECT_NEAR(lr(schedule, 1, 7, {10, 5}), 0.8, 1e-15);  // a run that ends in its warm-up
}

TEST(Schedule, StepsAreCountedFromTheEndOfTheWarmUp) {
  Schedule schedule;
  schedule.kind = ScheduleKind::step;
  schedule.every = {3, false};
  schedule.factor = 0.5;
  schedule.warmup_steps = 10;
  EXPECT_DOUBLE_EQ(lr(schedule, 1, 9, kRun), 1);
  for (const int64_t step : {10, 11, 12}) EXPECT_DOUBLE_EQ(lr(schedule, 1, step, kRun), 1);
  for (const int64_t step : {13, 14, 15}) EXPECT_DOUBLE_EQ(lr(schedule, 1, step, kRun), 0.5);
  EXPECT_DOUBLE_EQ(lr(schedule, 1, 16, kRun), 0.25);
  schedule.every = {1, true};  // of ten steps
  EXPECT_DOUBLE_EQ(lr(schedule, 1, 19, kRun), 1);
  EXPECT_DOUBLE_EQ(lr(schedule, 1, 20, kRun), 0.5);
}

TEST(Schedule, ACosineNoLongerThanItsWarmUpIsRefused) {
  Schedule schedule;
  schedule.kind = ScheduleKind::cosine;
  schedule.warmup_steps = 20;
  check(schedule, kRun);
  check(schedule, {10, 5});  // the run itself ends in the warm-up
  schedule.total = {21, false};
  check(schedule, kRun);
  schedule.total = {3, true};
  check(schedule, kRun);
  for (const TrainLength& total :
       {TrainLength{20, false}, TrainLength{5, false}, TrainLength{2, true}}) {
    schedule.total = total;
    test::expect_error(ErrorKind::usage, {"train.schedule", "warm-up of 20"},
                       [&] { check(schedule, kRun); });
  }
  test::expect_error(ErrorKind::usage, {"steps", "12 is not more than the 12 of warmup_steps"}, [] {
    ConfigTable table =
        ConfigTable::parse("s = { type = \"cosine\", steps = 12, warmup_steps = 12 }", "t.toml");
    read_schedule(table, "s");
  });
}

TEST(Schedule, ReadsBackWhatItWrites) {
  Schedule cosine;
  cosine.kind = ScheduleKind::cosine;
  cosine.total = {7, false};
  cosine.min_factor = 0.05;
  cosine.warmup_steps = 3;
  Schedule step;
  step.kind = ScheduleKind::step;
  step.warmup_steps = 2;
  step.every = {4, true};
  step.factor = 0.3;
  for (const Schedule& schedule : {Schedule{}, step, cosine}) {
    ConfigTable table = ConfigTable::parse("s = " + to_toml(schedule), "t.toml");
    EXPECT_EQ(read_schedule(table, "s"), schedule) << to_toml(schedule);
  }
}

TEST(Schedule, RefusesBothUnits) {
  test::expect_error(ErrorKind::usage, {"every_epochs or every_steps", "not both"}, [] {
    ConfigTable table =
        ConfigTable::parse("s = { type = \"step\", every_epochs = 1, every_steps = 2 }", "t.toml");
    read_schedule(table, "s");
  });
}

}  // namespace
}  // namespace ridgeline::nn
