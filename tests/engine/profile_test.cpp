#include "ridgeline/engine/profile/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ridgeline/engine/profile/device_use.h"
#include "ridgeline/engine/report/page.h"
#include "ridgeline/engine/train/trainer.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::slurp;
using testing::small_config;
using testing::small_set;
using testing::TempFolder;

Profile small_profile(const std::vector<std::string>& sets = {},
                      const std::vector<std::string>& kernels = {}) {
  ProfileOptions options;
  options.set = small_set();
  options.seconds = 0.3;
  Config config = small_config(sets);
  config.run.kernels = kernels;
  return profile_training(config, "small.toml", options);
}

TEST(Quantiles, AreOrderStatistics) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const Quantiles q = quantiles(values);
  EXPECT_EQ(q.p10, 10);
  EXPECT_EQ(q.median, 50);
  EXPECT_EQ(q.p90, 90);
  EXPECT_EQ(q.mean, 50);
  EXPECT_EQ(q.least, 0);
  EXPECT_EQ(q.most, 100);
  EXPECT_EQ(q.count, 101);
  EXPECT_EQ(quantiles({}).median, 0);
  EXPECT_EQ(quantiles({3}).p90, 3);
}

TEST(Profile, EveryKernelOfThePlanHasItsTimeAndWork) {
  const TempFolder folder;
  const Profile profile = small_profile({}, {"!cpu.mlp_train"});  // which takes the whole step
  ASSERT_GT(profile.kernels.size(), 3u);
  EXPECT_EQ(profile.kernels.front().begin, 0u);
  double share = 0;
  for (size_t i = 0; i < profile.kernels.size(); ++i) {
    const KernelProfile& kernel = profile.kernels[i];
    EXPECT_LE(kernel.seconds.p10, kernel.seconds.median) << kernel.name;
    EXPECT_LE(kernel.seconds.median, kernel.seconds.p90) << kernel.name;
    EXPECT_GT(kernel.work.bytes, 0) << kernel.name;
    EXPECT_FALSE(kernel.what.empty());
    share += kernel.share;
    if (i > 0) {
      EXPECT_EQ(kernel.begin, profile.kernels[i - 1].end);
    }
  }
  EXPECT_NEAR(share, 1, 1e-9);
  EXPECT_NEAR(profile.total.median, profile.kernel_seconds() + profile.interrupted + profile.gaps,
              1e-12);
  EXPECT_FALSE(profile.advice.empty());
  double heavy = 0;
  for (const size_t i : profile.heaviest()) heavy += profile.kernels[i].share;
  EXPECT_GE(heavy, 0.9);
}

TEST(Profile, TrainsNothing) {
  const TempFolder folder;
  // Plain SGD: with a rate of zero no weight changes in any number of passes, so a plan can be
  // profiled in the middle of a run.
  const Config config =
      small_config({"train.optimizer={type=\"sgd\",lr=0.1}", "train.clip_norm=0"});
  Machine machine(config.run);
  Trainer trainer(machine, config, small_set());
  trainer.advance(1);
  const Snapshot before = trainer.snapshot();
  ProfileOptions options;
  options.seconds = 0.05;
  profile_runner(machine, trainer.runner(), config, options);
  const Snapshot after = trainer.snapshot();
  ASSERT_EQ(before.items.size(), after.items.size());
  for (size_t i = 0; i < before.items.size(); ++i) {
    const Tensor &a = before.items[i].value.view(), &b = after.items[i].value.view();
    EXPECT_EQ(0, std::memcmp(a.data, b.data, a.bytes())) << before.items[i].name;
  }
}

TEST(Profile, TimelineNestsKernelsInSteps) {
  const TempFolder folder;
  const Profile profile = small_profile();
  const auto& lanes = profile.timeline.lanes();
  ASSERT_GE(lanes.size(), 2u);
  std::vector<const prof::Timeline::Span*> steps, kernels;
  for (const auto& span : profile.timeline.spans()) {
    if (lanes[size_t(span.lane)].name == "steps") steps.push_back(&span);
    if (lanes[size_t(span.lane)].name == "kernels") kernels.push_back(&span);
  }
  EXPECT_EQ(kernels.size(), steps.size() * profile.kernels.size());
  for (const auto* kernel : kernels) {
    const bool inside = std::any_of(steps.begin(), steps.end(), [&](const auto* step) {
      return kernel->begin >= step->begin - 1e-9 &&
             kernel->begin + kernel->seconds <= step->begin + step->seconds + 1e-9;
    });
    EXPECT_TRUE(inside) << kernel->name;
  }
}

TEST(Profile, OneKernelForTheWholeStepIsProfiledToo) {
  const TempFolder folder;
  const Profile profile = small_profile(
      {"train.optimizer={type=\"sgd\",lr=0.1}", "train.clip_norm=0", "model.layers.2.p=0.0"});
  EXPECT_GE(profile.kernels.size(), 1u);
  EXPECT_GT(profile.total.median, 0);
}

TEST(Profile, TextAndJsonSayTheSame) {
  const TempFolder folder;
  const Profile profile = small_profile();
  const std::string text = to_text(profile);
  const auto json = nlohmann::json::parse(to_json_text(profile));
  EXPECT_EQ(json["kernels"].size(), profile.kernels.size());
  for (const KernelProfile& kernel : profile.kernels) EXPECT_THAT(text, HasSubstr(kernel.name));
  EXPECT_THAT(text, HasSubstr("gaps"));
  EXPECT_THAT(text, HasSubstr("next        "));
  EXPECT_NEAR(json["us"]["median"].get<double>(), 1e6 * profile.total.median, 1e-6);
  for (const auto& kernel : json["kernels"]) {
    for (const char* key : {"us", "share", "flops", "bytes", "flops_per_second", "bytes_per_second",
                            "intensity", "roof", "fraction"}) {
      EXPECT_TRUE(kernel.contains(key)) << key;
    }
  }
}

// Kernels that overlap, or that are slower one by one, take longer than a step.
TEST(Profile, PageHasNoNegativeTimeAmongItsFigures) {
  const TempFolder folder;
  Profile profile = small_profile();
  const auto page = [&](double gaps) {
    profile.gaps = gaps;
    write_report(profile, folder.path() / "page");
    return slurp(folder.path() / "page" / "report.html");
  };
  EXPECT_THAT(page(2e-5), HasSubstr("between kernels"));
  EXPECT_THAT(page(-2e-5), Not(HasSubstr("between kernels")));
}

// Two kernels on two streams, half a second together, and a copy that overlaps one of them.
DeviceTrace invented_trace() {
  DeviceTrace trace;
  LaunchRecord kernel;
  kernel.name = "a";
  kernel.begin = 10;
  kernel.end = 11;
  kernel.stream = 7;
  trace.launches.push_back(kernel);
  kernel.begin = 10.5;
  kernel.end = 12;
  kernel.stream = 8;
  trace.launches.push_back(kernel);
  trace.copies.push_back({"to the GPU", 11.5, 13, 7, 3000});
  trace.calls = {{"cudaLaunchKernel", 9, 9.9, 0},
                 {"cudaMalloc", 9.9, 9.95, 0},
                 {"cudaLaunchKernel", 9.95, 10, 1}};
  return trace;
}

TEST(DeviceUse, ByHand) {
  DeviceTrace trace = invented_trace();
  const DeviceUse use = device_use(trace);
  EXPECT_DOUBLE_EQ(use.busy, 1);               // from 10 to 13 without a gap
  EXPECT_DOUBLE_EQ(use.concurrency, 2.5 / 2);  // 2.5 seconds of kernels in 2
  EXPECT_DOUBLE_EQ(use.overlap, 0.5 / 1.5);    // 11.5 to 12 of 11.5 to 13
  EXPECT_DOUBLE_EQ(use.copy_rate, 2000);
  trace.copies[0].begin = 12.5;  // a gap of half a second, no overlap
  EXPECT_DOUBLE_EQ(device_use(trace).busy, 2.5 / 3);
  EXPECT_DOUBLE_EQ(device_use(trace).overlap, 0);
  EXPECT_EQ(device_use({}).busy, 0);
}

TEST(DeviceUse, CopiesByDirectionAndBesideOneAnother) {
  DeviceTrace trace;
  trace.copies = {{"to the GPU", 0, 2, 7, 100, true},
                  {"to the host", 1, 2.5, 8, 30, false},
                  {"to the GPU", 3, 4, 7, 200, false},
                  {"fill", 5, 5.5, 7, 8, false}};
  const auto uses = copies_by_kind(trace.copies);
  ASSERT_EQ(uses.size(), 3u);
  EXPECT_EQ(uses[0].kind, "to the GPU");
  EXPECT_EQ(uses[0].count, 2);
  EXPECT_EQ(uses[0].bytes, 300);
  EXPECT_EQ(uses[0].pageable_bytes, 100);
  EXPECT_DOUBLE_EQ(uses[0].seconds, 3);
  EXPECT_DOUBLE_EQ(uses[0].mean(), 1.5);
  EXPECT_DOUBLE_EQ(uses[0].least, 1);
  EXPECT_DOUBLE_EQ(uses[0].most, 2);
  EXPECT_DOUBLE_EQ(uses[0].rate(), 100);
  EXPECT_EQ(uses[2].kind, "fill");
  // Copies run for 2.5 + 1 + 0.5 seconds, and two of them at once for one.
  const DeviceUse use = device_use(trace);
  EXPECT_DOUBLE_EQ(use.copy_overlap, 1 / 4.0);
  EXPECT_DOUBLE_EQ(use.copy_share, 4 / 5.5);
  // Three that begin together overlap once over the second longest of them.
  trace.copies = {
      {"fill", 0, 3, 1, 1, false}, {"fill", 0, 2, 2, 1, false}, {"fill", 0, 1, 3, 1, false}};
  EXPECT_DOUBLE_EQ(device_use(trace).copy_overlap, 2 / 3.0);
  EXPECT_TRUE(copies_by_kind({}).empty());
}

TEST(DeviceUse, CallsAreExplainedByWhatTheyDo) {
  Profile profile;
  EXPECT_TRUE(explain_calls(profile).empty());
  profile.api = {{"cudaStreamSynchronize", 10, 0.9, 0.9, 0.01, 0.2},
                 {"cudaGraphLaunch", 10, 0.05, 0.05, 0.001, 0.01},
                 {"cudaMalloc", 3, 0.05, 0.05, 0.01, 0.02}};
  profile.api_seconds = 1;
  profile.function_seconds = 0.9;
  auto lines = explain_calls(profile);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[0], HasSubstr("the host mostly waits for the GPU"));
  EXPECT_THAT(lines[1], HasSubstr("cudaStreamSynchronize waits for GPU functions"));
  EXPECT_THAT(lines[2], HasSubstr("cudaGraphLaunch asks for work"));
  EXPECT_THAT(lines[3], HasSubstr("cudaMalloc sets up"));
  profile.api[0].seconds = 0.1;
  profile.api[1].seconds = 0.85;
  profile.function_seconds = 0.3;
  EXPECT_THAT(explain_calls(profile)[0], HasSubstr("the GPU waits for the host"));
  profile.api[2].seconds = 0.6;
  EXPECT_THAT(explain_calls(profile)[0], HasSubstr("set things up once"));
}

TEST(Profile, PassesAddUpToTheStep) {
  const TempFolder folder;
  const Profile profile = small_profile({"train.batch=100"});
  const prof::StepCost& cost = profile.cost;
  const auto at = [&](prof::Pass pass) { return cost.passes[size_t(pass)]; };
  // 36-17-4: both products forward; backward both weights' gradients and the upper layer's input.
  const double forward = 2.0 * 100 * (36 * 17 + 17 * 4);
  const double backward = forward + 2.0 * 100 * 17 * 4;
  EXPECT_EQ(cost.product_flops, forward + backward + 100 * (17 + 4));  // and biases
  EXPECT_GT(at(prof::Pass::forward).flops, forward);
  EXPECT_GT(at(prof::Pass::backward).flops, backward);
  EXPECT_GT(at(prof::Pass::update).bytes, 0);
  EXPECT_EQ(at(prof::Pass::exchange).bytes, 0);
  double seconds = cost.joined_seconds;
  for (const prof::PassCost& pass : cost.passes) seconds += pass.seconds;
  EXPECT_NEAR(seconds, profile.kernel_seconds(), 1e-12);
  EXPECT_LE(cost.product_seconds, profile.kernel_seconds() + 1e-12);
  EXPECT_THAT(to_text(profile), HasSubstr("passes      forward "));
}

TEST(Profile, SaysWhatTheProgramTook) {
  const TempFolder folder;
  const Profile profile = small_profile();
  EXPECT_GT(profile.program.user, 0);
  EXPECT_GT(profile.program.elapsed, 0);
  EXPECT_GT(profile.program.peak_bytes, 1 << 20);
  EXPECT_THAT(to_text(profile), HasSubstr("program     "));
  for (const KernelProfile& kernel : profile.kernels) {
    EXPECT_EQ(kernel.seconds.count, profile.passes);
    EXPECT_LE(kernel.seconds.least, kernel.seconds.p10);
    EXPECT_LE(kernel.seconds.p90, kernel.seconds.most);
    EXPECT_LE(kernel.seconds.least, kernel.seconds.mean);
  }
  const auto json = nlohmann::json::parse(to_json_text(profile));
  EXPECT_GT(json["program"]["elapsed_s"].get<double>(), 0);
  EXPECT_EQ(json["kernels"][0]["us"]["count"].get<int64_t>(), profile.passes);
}

TEST(DeviceUse, HeaviestCallsTakeNineTenths) {
  const auto calls = heaviest_calls(invented_trace().calls);
  ASSERT_EQ(calls.size(), 1u);  // 0.95 of 1 second
  EXPECT_EQ(calls[0].name, "cudaLaunchKernel");
  EXPECT_EQ(calls[0].calls, 2);
  EXPECT_NEAR(calls[0].share, 0.95, 1e-9);
}

TEST(DeviceUse, KernelsGroupByNameAndShape) {
  DeviceTrace trace = invented_trace();
  trace.launches.push_back(trace.launches[0]);
  trace.launches.back().grid[0] = 5;
  const auto uses = group_launches(trace.launches);
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].count, 2);
  EXPECT_DOUBLE_EQ(uses[0].seconds, 2.5);
}

TEST(DeviceUse, LanesOfThreadsAndStreams) {
  prof::Timeline timeline;
  add_to_timeline(invented_trace(), timeline);
  std::vector<std::string> names;
  for (const auto& lane : timeline.lanes()) names.push_back(lane.name);
  for (const char* name : {"host thread 0", "host thread 1", "stream 7", "stream 8"}) {
    EXPECT_THAT(names, Contains(name));
  }
  EXPECT_EQ(timeline.spans().size(), 6u);
  for (const auto& span : timeline.spans()) EXPECT_GE(span.begin, 0);
}

}  // namespace
}  // namespace ridgeline::engine
