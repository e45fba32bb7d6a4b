// The planner with invented kernels and times: what it chooses, refuses and explains.
#include "ridgeline/plan/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "ridgeline/plan/cache.h"
#include "ridgeline/registry.h"

namespace ridgeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// x -> a -> b -> y, all ReLU; y leaves the program.
Program chain() {
  Program program;
  Value value = program.add_value("x", DType::fp32, {8}, Role::input);
  for (const char* name : {"a", "b", "y"}) {
    const Role role = *name == 'y' ? Role::output : Role::temp;
    const Value next = program.add_value(name, DType::fp32, {8}, role);
    program.add(Activation{ActivationKind::relu, value, next});
    value = next;
  }
  return program;
}

// A kernel that takes `length` ops wherever they fit, and leaves their interior values unwritten.
Kernel kernel(const std::string& name, size_t length, Traits traits = {}) {
  return {name,
          DeviceKind::cpu,
          [=](const RemainingOps& rest) {
            if (rest.size() < length) return Cover::no("too few ops left");
            Cover cover = Cover::of(length);
            for (size_t i = 0; i + 1 < length; ++i) {
              cover.skips.push_back(rest.get<Activation>(i)->y.id);
            }
            return cover;
          },
          [](const Span&, const Binding&) { return make_step([] {}); },
          traits,
          {}};
}

class InventedTimes final : public Stopwatch {
 public:
  explicit InventedTimes(std::map<std::string, double> kernels) : kernels_(std::move(kernels)) {}
  double kernel(const Choice& choice) override {
    ++asked;
    return kernels_.at(choice.kernel->name);
  }
  double whole(const Choices& choices) override {
    double sum = 0;
    for (const Choice& choice : choices) sum += kernels_.at(choice.kernel->name) + overhead;
    return sum;
  }
  double overhead = 0;  // the cost of a step beyond its own time, which only whole plans show
  int asked = 0;

 private:
  std::map<std::string, double> kernels_;
};

std::vector<std::string> names(const Choices& choices) {
  std::vector<std::string> names;
  for (const Choice& choice : choices) names.push_back(choice.kernel->name);
  return names;
}

class Planner : public ::testing::Test {
 protected:
  Planned plan(const KernelTable& table, std::map<std::string, double> times,
               PlanOptions options = {}) {
    InventedTimes stopwatch(std::move(times));
    return plan_program(program_, table, *runtime_, options, stopwatch);
  }

  Program program_ = chain();
  std::unique_ptr<Runtime> runtime_ = make_runtime(Device{}, 1);
};

TEST_F(Planner, TakesAFusedKernelExactlyWhenItIsCheaper) {
  const KernelTable table{kernel("fused", 3), kernel("single", 1)};
  EXPECT_THAT(names(plan(table, {{"fused", 2}, {"single", 1}}).choices), ElementsAre("fused"));
  EXPECT_THAT(names(plan(table, {{"fused", 4}, {"single", 1}}).choices),
              ElementsAre("single", "single", "single"));
}

TEST_F(Planner, WholePlansDecideBetweenTheBestFew) {
  const KernelTable table{kernel("single", 1), kernel("fused", 3)};
  InventedTimes stopwatch({{"fused", 3.3}, {"single", 1}});
  stopwatch.overhead = 0.5;  // three steps pay it three times
  const Planned planned = plan_program(program_, table, *runtime_, {}, stopwatch);
  EXPECT_THAT(names(planned.choices), ElementsAre("fused"));
  EXPECT_EQ(planned.explanation.shortlist_seconds.size(), 2u);
}

TEST_F(Planner, TheFixedOrderIsMeasuredWholeHoweverDearItsSum) {
  const KernelTable table{kernel("fused", 3), kernel("a", 1), kernel("b", 1)};
  InventedTimes stopwatch({{"fused", 9}, {"a", 1}, {"b", 1.1}});
  stopwatch.overhead = 5;  // three steps: 18; one: 14
  PlanOptions options;
  options.shortlist = 2;  // both of them mixtures of a and b
  const Planned planned = plan_program(program_, table, *runtime_, options, stopwatch);
  EXPECT_THAT(names(planned.choices), ElementsAre("fused"));
  EXPECT_EQ(planned.explanation.shortlist_seconds.size(), 3u);
}

// The first measurement of the fused kernel's plan is disturbed.
TEST_F(Planner, OneDisturbanceDoesNotCostTheFixedOrderItsPlace) {
  class DisturbedOnce final : public Stopwatch {
   public:
    double kernel(const Choice& choice) override { return choice.kernel->name == "fused" ? 9 : 1; }
    double whole(const Choices& choices) override {
      const bool fused = choices.front().kernel->name == "fused";
      return fused ? (++asked == 1 ? 9 : fused_seconds) : 3;
    }
    int asked = 0;
    double fused_seconds = 2;
  };
  const KernelTable table{kernel("fused", 3), kernel("single", 1)};
  DisturbedOnce stopwatch;
  const Planned planned = plan_program(program_, table, *runtime_, {}, stopwatch);
  EXPECT_THAT(names(planned.choices), ElementsAre("fused"));
  EXPECT_EQ(stopwatch.asked, 2);

  DisturbedOnce slow;
  slow.fused_seconds = 9;
  EXPECT_THAT(names(plan_program(program_, table, *runtime_, {}, slow).choices),
              ElementsAre("single", "single", "single"));
}

TEST_F(Planner, TiesGoToTheFixedOrder) {
  const KernelTable table{kernel("first", 3), kernel("second", 3)};
  EXPECT_THAT(names(plan(table, {{"first", 1.01}, {"second", 1.0}}).choices), ElementsAre("first"));
  EXPECT_THAT(names(plan(table, {{"first", 1.10}, {"second", 1.0}}).choices),
              ElementsAre("second"));
}

TEST_F(Planner, WithoutTuningTheTablesOrderDecidesAndNothingIsMeasured) {
  const KernelTable table{kernel("pair", 2), kernel("single", 1)};
  InventedTimes stopwatch({});
  PlanOptions options;
  options.tune = false;
  const Planned planned = plan_program(program_, table, *runtime_, options, stopwatch);
  EXPECT_THAT(names(planned.choices), ElementsAre("pair", "single"));
  EXPECT_EQ(planned.explanation.source, "fixed order");
  EXPECT_EQ(stopwatch.asked, 0);
}

// Kernels whose traits say that they are slow to query.
TEST_F(Planner, SlowKernelsAreAskedWhereTheirAnswerCounts) {
  int asked = 0;
  Kernel slow = kernel("slow", 1);
  slow.traits.slow_to_query = true;
  slow.covers = [&asked, covers = slow.covers](const RemainingOps& rest) {
    ++asked;
    return covers(rest);
  };
  const KernelTable behind{kernel("quick", 1), slow}, ahead{slow, kernel("quick", 1)};
  const std::map<std::string, double> times{{"quick", 2}, {"slow", 1}};
  PlanOptions fixed;
  fixed.tune = false;
  EXPECT_THAT(names(plan(behind, times, fixed).choices), ElementsAre("quick", "quick", "quick"));
  EXPECT_EQ(asked, 0);
  plan(behind, times);  // measured, so all are
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(plan(ahead, times, fixed).choices.front().kernel->name, "slow");

  // Named by a kept plan, or the only one left.
  asked = 0;
  const Planned named = plan_by_names(program_, behind, *runtime_, {}, {"quick", "slow", "quick"});
  EXPECT_THAT(names(named.choices), ElementsAre("quick", "slow", "quick"));
  EXPECT_EQ(asked, 3);
  asked = 0;
  EXPECT_EQ(
      plan_by_names(program_, behind, *runtime_, {}, {"quick", "quick", "quick"}).choices.size(),
      3u);
  EXPECT_EQ(asked, 0);
  Traits reference;
  reference.fallback = true;
  EXPECT_EQ(names(plan({kernel("reference", 1, reference), slow}, times, fixed).choices).front(),
            "slow");
  // A kernel before it that leads to no complete plan is of no use.
  EXPECT_THAT(names(plan({kernel("two", 2), slow}, times, fixed).choices),
              ElementsAre("two", "slow"));
  fixed.pinned = {"quick", "quick", "slow"};
  EXPECT_THAT(names(plan(behind, times, fixed).choices), ElementsAre("quick", "quick", "slow"));
}

TEST_F(Planner, RefusesAKernelThatWouldNotWriteWhatIsReadLater) {
  const Value z = program_.add_value("z", DType::fp32, {8}, Role::output);
  program_.add(Activation{ActivationKind::relu, program_.values[1].value, z});  // reads a again
  const KernelTable table{kernel("pair", 2), kernel("single", 1)};
  const Planned planned = plan(table, {{"pair", 0.1}, {"single", 1}});
  // A pair at 0 would leave `a` unwritten, a pair at 2 the output `y`; only the one at 1 is sound.
  EXPECT_THAT(names(planned.choices), ElementsAre("single", "pair", "single"));
  for (const Candidate& candidate : planned.explanation.candidates) {
    if (candidate.kernel->name != "pair" || candidate.begin == 1) continue;
    const char* why = candidate.begin == 0   ? "does not write a, which is read later"
                      : candidate.begin == 2 ? "does not write y, which is read later"
                                             : "too few ops left";
    EXPECT_EQ(candidate.cover.reason, why);
  }
}

TEST_F(Planner, FallbacksAreUsedOnlyWhereNothingElseCovers) {
  Kernel only_first = kernel("fast", 1);
  only_first.covers = [](const RemainingOps& rest) {
    return rest.begin == 0 ? Cover::of(1) : Cover::no("only the first op");
  };
  const KernelTable table{only_first,
                          kernel("reference", 1, {.deterministic = true, .fallback = true})};
  const Planned planned = plan(table, {{"fast", 100}, {"reference", 1}});
  EXPECT_THAT(names(planned.choices), ElementsAre("fast", "reference", "reference"));
}

TEST_F(Planner, TraitsSayWhichRunsAKernelIsFor) {
  const KernelTable table{kernel("halves", 3, {.precisions = kHalves}),
                          kernel("hopper", 3, {.least_arch = 90}),
                          kernel("cpu.all.shown", 3, {.demonstration = true}), kernel("plain", 1)};
  const std::map<std::string, double> times{
      {"halves", 1}, {"hopper", 1}, {"cpu.all.shown", 1}, {"plain", 2}};
  program_.precision = Precision::fp32;
  const Planned planned = plan(table, times);
  EXPECT_THAT(names(planned.choices), ElementsAre("plain", "plain", "plain"));
  for (const Candidate& candidate : planned.explanation.candidates) {
    const bool refused = candidate.cover.ops == 0;
    EXPECT_EQ(refused, candidate.kernel->name != "plain");
    EXPECT_EQ(refused, candidate.cover.reason.starts_with(kForOthers));
  }
  program_.precision = Precision::bf16;
  EXPECT_THAT(names(plan(table, times).choices), ElementsAre("halves"));
}

TEST_F(Planner, TakesDemonstrationKernelsOnlyByName) {
  const KernelTable table{kernel("cpu.all.shown", 3, {.demonstration = true}),
                          kernel("cpu.one.simd", 1)};
  const std::map<std::string, double> times{{"cpu.all.shown", 1}, {"cpu.one.simd", 2}};
  PlanOptions options;
  options.only = {"cpu."};
  EXPECT_THAT(names(plan(table, times, options).choices),
              ElementsAre("cpu.one.simd", "cpu.one.simd", "cpu.one.simd"));
  options.only = {"cpu.*.shown"};
  EXPECT_THAT(names(plan(table, times, options).choices), ElementsAre("cpu.all.shown"));
  options = {};
  options.pinned = {"cpu.all.shown"};  // of a run that was asked for it
  EXPECT_THAT(names(plan(table, times, options).choices), ElementsAre("cpu.all.shown"));
  options = {};
  options.demonstrations = true;
  EXPECT_THAT(names(plan(table, times, options).choices), ElementsAre("cpu.all.shown"));
}

TEST_F(Planner, DeterministicAndOnlyAndExceptRestrictTheTable) {
  const KernelTable table{kernel("loose", 3, {.deterministic = false, .fallback = false}),
                          kernel("strict", 3), kernel("other", 1)};
  const std::map<std::string, double> times{{"loose", 1}, {"strict", 2}, {"other", 0.5}};
  PlanOptions options;
  options.deterministic = true;
  EXPECT_THAT(names(plan(table, times, options).choices), ElementsAre("strict"));
  options.except = {"str"};
  EXPECT_THAT(names(plan(table, times, options).choices), ElementsAre("other", "other", "other"));
  options = {};
  options.except = {"loo"};
  EXPECT_THAT(names(plan(table, times, options).choices), ElementsAre("other", "other", "other"));
  options = {};
  options.only = {"strict"};
  EXPECT_THAT(names(plan(table, times, options).choices), ElementsAre("strict"));
}

TEST_F(Planner, PatternsOfKernelNames) {
  const KernelTable table{kernel("cpu.pair.simd", 2), kernel("cpu.one.simd", 1),
                          kernel("cpu.one.plain", 1)};
  const std::map<std::string, double> times{
      {"cpu.pair.simd", 1}, {"cpu.one.simd", 2}, {"cpu.one.plain", 3}};
  PlanOptions options;
  options.only = {"*.plain"};
  EXPECT_THAT(names(plan(table, times, options).choices),
              ElementsAre("cpu.one.plain", "cpu.one.plain", "cpu.one.plain"));
  options.only = {"cpu.*.simd"};
  options.except = {"*.pair.*"};
  EXPECT_THAT(names(plan(table, times, options).choices),
              ElementsAre("cpu.one.simd", "cpu.one.simd", "cpu.one.simd"));
  options.only = {"cpu.one"};
  options.except = {"cpu.*.s*d"};
  EXPECT_THAT(names(plan(table, times, options).choices),
              ElementsAre("cpu.one.plain", "cpu.one.plain", "cpu.one.plain"));
  options.only = {"*.one"};  // with a star a pattern is the whole name
  EXPECT_THROW(plan(table, times, options), Error);
}

TEST_F(Planner, DemonstrationsArePlannedOnlyByTheirNames) {
  const KernelTable table{kernel("cpu.one.naive", 1, {.demonstration = true}),
                          kernel("cpu.one.simd", 1)};
  const std::map<std::string, double> times{{"cpu.one.naive", 1}, {"cpu.one.simd", 2}};
  PlanOptions options;
  EXPECT_THAT(names(plan(table, times, options).choices),
              ElementsAre("cpu.one.simd", "cpu.one.simd", "cpu.one.simd"));
  options.only = {"cpu.one"};
  EXPECT_THAT(names(plan(table, times, options).choices),
              ElementsAre("cpu.one.simd", "cpu.one.simd", "cpu.one.simd"));
  options.only = {"cpu.*.naive"};
  EXPECT_THAT(names(plan(table, times, options).choices),
              ElementsAre("cpu.one.naive", "cpu.one.naive", "cpu.one.naive"));
}

TEST_F(Planner, ProductsAreSummedInWhatTheProgramAsksFor) {
  program_ = {};
  program_.precision = program_.accumulate = Precision::fp16;
  const Value x = program_.add_value("x", DType::fp16, {4, 3}, Role::input);
  const Value w = program_.add_value("w", DType::fp16, {2, 3}, Role::param);
  program_.add(Linear{x, w, {}, program_.add_value("y", DType::fp16, {4, 2}, Role::output)});
  const KernelTable table{kernel("cpu.linear.simd", 1),
                          kernel("cpu.linear.fp16_sums", 1, {.fp16_sums = true})};
  const std::map<std::string, double> times{{"cpu.linear.simd", 1}, {"cpu.linear.fp16_sums", 2}};
  EXPECT_THAT(names(plan(table, times).choices), ElementsAre("cpu.linear.fp16_sums"));
  const std::string asked = signature(program_);
  program_.accumulate = Precision::fp32;
  EXPECT_THAT(names(plan(table, times).choices), ElementsAre("cpu.linear.simd"));
  EXPECT_NE(signature(program_), asked);
}

TEST_F(Planner, PinnedKernelsAreUsedAgainAndIgnoredWhenTheyDoNotFit) {
  const KernelTable table{kernel("fused", 3), kernel("single", 1)};
  PlanOptions options;
  options.pinned = {"single", "single", "single"};
  EXPECT_THAT(names(plan(table, {{"fused", 1}, {"single", 9}}, options).choices),
              ElementsAre("single", "single", "single"));
  options.pinned = {"gone"};
  const Planned planned = plan(table, {{"fused", 1}, {"single", 9}}, options);
  EXPECT_THAT(names(planned.choices), ElementsAre("fused"));
  EXPECT_EQ(planned.explanation.source, "measured");
}

TEST_F(Planner, SaysWhichKernelsWereTriedWhenNothingCovers) {
  Kernel other = kernel("other", 2);
  other.covers = [](const RemainingOps&) {
    return Cover::no("the next ops are no linear and its relu");
  };
  const KernelTable table{kernel("pair", 2), other};
  try {
    plan(table, {{"pair", 1}, {"other", 1}});
    FAIL() << "planned three ops with pairs";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("activation"));
    EXPECT_THAT(error.what(), HasSubstr("pair: too few ops left"));
    EXPECT_THAT(error.what(), Not(HasSubstr("other")));
  }
}

TEST_F(Planner, DeterministicPlansFollowNeitherTimesNorTheCache) {
  const KernelTable table{kernel("loose", 3, {.deterministic = false, .fallback = false}),
                          kernel("slow", 3), kernel("fast", 3)};
  InventedTimes stopwatch({});
  PlanOptions options;
  options.deterministic = true;
  EXPECT_THAT(names(plan_program(program_, table, *runtime_, options, stopwatch).choices),
              ElementsAre("slow"));
  EXPECT_EQ(stopwatch.asked, 0);

  const auto file = std::filesystem::path(::testing::TempDir()) / "planner_test_pinned.json";
  std::filesystem::remove(file);
  TuningCache cache(file, "test");
  cache.set_plan(signature(program_), {{"fast"}, 1e-9});
  const Planned planned = plan_program(program_, table, *runtime_, options, &cache);
  EXPECT_THAT(names(planned.choices), ElementsAre("slow"));
  EXPECT_EQ(planned.explanation.source, "fixed order");
  EXPECT_FALSE(std::filesystem::exists(file)) << "nothing was measured";

  options.pinned = {"fast"};  // by a checkpoint
  EXPECT_THAT(names(plan_program(program_, table, *runtime_, options, &cache).choices),
              ElementsAre("fast"));
}

constexpr const char* kUncertain =
    "measured again: the machine was busy when the kept plan was chosen";

TEST_F(Planner, TheCacheAnswersTheSecondTime) {
  const auto file = std::filesystem::path(::testing::TempDir()) / "planner_test_tuning.json";
  std::filesystem::remove(file);
  TuningCache cache(file, "test");
  const KernelTable table = all_kernels();
  PlanOptions options;
  options.seconds_per_kernel = 1e-4;
  const Planned first = plan_program(program_, table, *runtime_, options, &cache);
  EXPECT_EQ(first.explanation.source, "measured");

  TuningCache reloaded(file, "test");
  const Planned second = plan_program(program_, table, *runtime_, options, &reloaded);
  EXPECT_EQ(second.explanation.source, "cache");
  EXPECT_EQ(names(second.choices), names(first.choices));

  // Tuned while the machine was busy: far from the plan's current time.
  TuningCache busy(file, "test");
  busy.set_plan(signature(program_), {names(first.choices), 10.0});
  const Planned third = plan_program(program_, table, *runtime_, options, &busy);
  EXPECT_THAT(third.explanation.source, HasSubstr("measured again: the kept plan took"));
  EXPECT_EQ(plan_program(program_, table, *runtime_, options, &busy).explanation.source, "cache");

  options.only = {"cpu.*.reference"};  // another question
  TuningCache again(file, "test");
  EXPECT_EQ(plan_program(program_, table, *runtime_, options, &again).explanation.source,
            "measured");
  std::filesystem::remove(file);
}

// A plan that was chosen on a busy machine is measured again, once, when the machine is quiet and
// some time has passed.
TEST_F(Planner, MeasuresAnUncertainPlanAgainOnce) {
  const auto file = std::filesystem::path(::testing::TempDir()) / "planner_test_uncertain.json";
  std::filesystem::remove(file);
  const KernelTable table = all_kernels();
  PlanOptions options;
  options.seconds_per_kernel = 1e-3;
  TuningCache cache(file, "test");
  plan_program(program_, table, *runtime_, options, &cache);
  const auto source = [&](int64_t disturbed) {
    KeptPlan plan = *cache.plan(signature(program_));
    plan.disturbed = disturbed;
    cache.set_plan(signature(program_), plan);
    return plan_program(program_, table, *runtime_, options, &cache).explanation.source;
  };
  const int64_t now = std::time(nullptr);
  EXPECT_EQ(source(now - 60), "cache") << "it is too new";
  std::string found;
  for (int again = 0; again < 50 && found != kUncertain; ++again) found = source(now - 3600);
  if (found != kUncertain) GTEST_SKIP() << "this machine is busy";
  EXPECT_EQ(cache.plan(signature(program_))->disturbed, 0);
  EXPECT_EQ(plan_program(program_, table, *runtime_, options, &cache).explanation.source, "cache");
  std::filesystem::remove(file);
}

// Times that are spent waiting, as on a machine whose processors are in use by others.
class WaitedForTimes final : public Stopwatch {
 public:
  double kernel(const Choice&) override {
    ++asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return 1e-3 / asked;  // what comes later in the table is faster
  }
  double whole(const Choices&) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return 1e-3;
  }
  int asked = 0;
};

TEST_F(Planner, DoesNotWaitForABusyMachine) {
  const KernelTable table{kernel("slow", 1), kernel("fast", 1)};
  WaitedForTimes stopwatch;
  PlanOptions options;
  options.busy_seconds = 0.04;  // after one or two of six
  const Planned planned = plan_program(program_, table, *runtime_, options, stopwatch);
  EXPECT_LE(stopwatch.asked, 2);
  EXPECT_THAT(names(planned.choices), ElementsAre("slow", "slow", "slow"));
  EXPECT_TRUE(planned.explanation.cut_short);
  EXPECT_THAT(planned.explanation.source, HasSubstr("busy"));

  WaitedForTimes patient;
  const Planned measured = plan_program(program_, table, *runtime_, {}, patient);
  EXPECT_GE(patient.asked, 6);
  EXPECT_FALSE(measured.explanation.cut_short);
}

TEST_F(Planner, MeasuresNoLongerThanATenthOfTheRun) {
  const KernelTable table{kernel("slow", 1), kernel("fast", 1)};
  PlanOptions options;
  options.least_tuning = 0.04;  // after one or two of six
  options.expected_runs = 10;   // of a millisecond each
  WaitedForTimes stopwatch;
  const Planned planned = plan_program(program_, table, *runtime_, options, stopwatch);
  EXPECT_LE(stopwatch.asked, 2);
  EXPECT_THAT(names(planned.choices), ElementsAre("slow", "slow", "slow"));
  EXPECT_TRUE(planned.explanation.cut_short);
  EXPECT_THAT(planned.explanation.source, HasSubstr("short"));

  options.expected_runs = 1'000'000;
  WaitedForTimes patient;
  EXPECT_FALSE(plan_program(program_, table, *runtime_, options, patient).explanation.cut_short);
  EXPECT_GE(patient.asked, 6);
}

// Returns invented times, and takes a while for the measurement after which patience shall end.
class TimesUntilTheEnd final : public Stopwatch {
 public:
  TimesUntilTheEnd(std::map<std::string, double> kernels, double mixed)
      : kernels_(std::move(kernels)), mixed_(mixed) {}
  double kernel(const Choice& choice) override {
    measured.push_back(fmt::format("{} at {}", choice.kernel->name, choice.begin));
    if (measured.size() == 4) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return kernels_.at(measured.back());
  }
  double whole(const Choices& choices) override {
    const auto first = [](const Choice& choice) { return choice.kernel->name == "first"; };
    return std::ranges::all_of(choices, first) ? 7e-3 : mixed_;
  }
  std::vector<std::string> measured;

 private:
  std::map<std::string, double> kernels_;
  double mixed_;  // seconds of a plan with the other kernel
};

TEST_F(Planner, KernelsMeasuredBeforeTheEndCompete) {
  const KernelTable table{kernel("first", 1), kernel("other", 1)};
  const std::map<std::string, double> times{{"first at 0", 1e-3}, {"first at 1", 4e-3},
                                            {"first at 2", 2e-3}, {"other at 0", 1e-6},
                                            {"other at 1", 3e-3}, {"other at 2", 1e-6}};
  PlanOptions options;
  options.expected_runs = 1;
  options.least_tuning = 0.3;
  TimesUntilTheEnd stopwatch(times, 6e-3);
  const Planned planned = plan_program(program_, table, *runtime_, options, stopwatch);
  // The table's order is measured first, then what may save the most of its time.
  EXPECT_THAT(stopwatch.measured,
              ElementsAre("first at 0", "first at 1", "first at 2", "other at 1"));
  EXPECT_THAT(names(planned.choices), ElementsAre("first", "other", "first"));
  EXPECT_TRUE(planned.explanation.cut_short);
  EXPECT_THAT(planned.explanation.source, HasSubstr("measured in part: the run is too short"));

  // The sum of a few times may be wrong, so the plan must also be faster as a whole.
  TimesUntilTheEnd slower(times, 8e-3);
  EXPECT_THAT(names(plan_program(program_, table, *runtime_, options, slower).choices),
              ElementsAre("first", "first", "first"));
}

// Long work is not a sign of a busy machine.
TEST_F(Planner, MeasuresOnWhereThisThreadHasTheProcessor) {
  class WorkedForTimes final : public Stopwatch {
   public:
    double kernel(const Choice& choice) override {
      timespec now{};
      const auto spent = [&] {
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
      };
      // Measured in processor time, so that other processes do not count.
      for (const double begin = spent(); spent() - begin < 5e-3;) {
      }
      return choice.kernel->name == "fast" ? 1e-6 : 1e-3;
    }
    double whole(const Choices& choices) override {
      double sum = 0;
      for (const Choice& choice : choices) sum += kernel(choice);
      return sum;
    }
  } stopwatch;
  const KernelTable table{kernel("slow", 1), kernel("fast", 1)};
  PlanOptions options;
  options.busy_seconds = 0.002;
  Planned planned;
  for (int again = 0; again < 20; ++again) {  // a neighbour may have the processor all the while
    planned = plan_program(program_, table, *runtime_, options, stopwatch);
    if (!planned.explanation.cut_short) break;
  }
  if (planned.explanation.cut_short) GTEST_SKIP() << "this machine is busy";
  EXPECT_THAT(names(planned.choices), ElementsAre("fast", "fast", "fast"));
}

TEST_F(Planner, TellsHowFarMeasuringIs) {
  std::vector<std::pair<size_t, size_t>> told;
  PlanOptions options;
  options.measuring = [&](size_t done, size_t all) { told.emplace_back(done, all); };
  plan({kernel("one", 1), kernel("other", 1)}, {{"one", 1.0}, {"other", 2.0}}, options);
  ASSERT_GE(told.size(), 6u);
  EXPECT_EQ(told.front(), (std::pair<size_t, size_t>(0, 6)));
  EXPECT_EQ(told.back(), (std::pair<size_t, size_t>(6, 6)));
}

}  // namespace
}  // namespace ridgeline
