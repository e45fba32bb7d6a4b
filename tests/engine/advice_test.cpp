// The advice that a profile gives, for invented profiles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridgeline/engine/profile/profile.h"

namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two element-wise kernels over 1e6 floats with a temporary between them.
struct Invented {
  Program program;
  Profile profile;

  explicit Invented(const char* device = "cpu") {
    const Shape shape{1'000'000};
    const Value x = program.add_value("x", DType::fp32, shape, Role::input);
    const Value y = program.add_value("y", DType::fp32, shape, Role::temp);
    const Value z = program.add_value("z", DType::fp32, shape, Role::output);
    program.add(Activation{ActivationKind::relu, x, y});
    program.add(Activation{ActivationKind::tanh, y, z});
    profile.device = device;
    prof::Ceilings ceilings;
    ceilings.fp32_flops = ceilings.fp64_flops = 1e12;
    ceilings.bandwidths = {{1e9, 100e9}};
    ceilings.launch_seconds = 2e-6;
    ceilings.date = "2026-01-31";
    profile.ceilings = ceilings;
    add("first", 1e-4, 0);
    add("second", 1e-4, 1);
    profile.total.median = 2e-4;
  }
  // A memory-bound kernel at 80 % of its roof.
  void add(const char* name, double seconds, size_t op) {
    KernelProfile kernel;
    kernel.name = name;
    kernel.what = "activation";
    kernel.begin = op;
    kernel.end = op + 1;
    kernel.seconds.median = seconds;
    kernel.share = 0.5;
    kernel.work.bytes = 8e6;
    kernel.roofs.seconds[size_t(prof::Roof::memory)] = 0.8 * seconds;
    kernel.fraction = 0.8;
    profile.kernels.push_back(kernel);
  }
  void bind(size_t i, prof::Roof roof, double fraction) {
    KernelProfile& kernel = profile.kernels[i];
    kernel.roofs = {};
    kernel.roofs.seconds[size_t(roof)] = fraction * kernel.seconds.median;
    kernel.fraction = fraction;
  }
  std::string advice() const {
    std::string all;
    for (const std::string& line : advise(profile, program)) all += line + "\n";
    return all;
  }
};

TEST(Advice, MemoryBoundKernelsWantFusingAndTheBytesAreNamed) {
  const std::string advice = Invented().advice();
  EXPECT_THAT(advice, HasSubstr("first (activation) takes 50 % and reaches 80 % of its memory"));
  // The temporary is written and read: 8 MB, 80 us at 100 GB/s, of 200.
  EXPECT_THAT(advice, HasSubstr("Fusing first with second would keep 8.00 MB on chip and save up "
                                "to 80 us a step (40 %)"));
}

TEST(Advice, LaunchBoundKernelsWantALargerBatch) {
  Invented gpu("cuda:0");
  for (const size_t i : {0, 1}) gpu.bind(i, prof::Roof::launch, 0.9);
  EXPECT_THAT(gpu.advice(),
              HasSubstr("100 % of the kernels' time is in 2 launch-bound kernels: no launch "
                        "gets shorter than 2 us here"));
}

TEST(Advice, CopiesAreJudgedByMemorySizeAndOverlap) {
  Invented gpu("cuda:0");
  gpu.profile.recorded_seconds = 1;
  gpu.profile.ceilings->host_bandwidth = 50e9;
  CopyUse upload{.kind = "to the GPU", .count = 2, .bytes = 2'000'000'000, .seconds = 0.2};
  upload.pageable_bytes = upload.bytes;
  gpu.profile.copies = {upload};
  EXPECT_THAT(gpu.advice(), HasSubstr("Copies to the GPU come at 10.0 GB/s, where pinned memory "
                                      "reaches 50.0 GB/s"));
  gpu.profile.copies[0].pageable_bytes = 0;
  EXPECT_THAT(gpu.advice(), Not(HasSubstr("Copies")));
  gpu.profile.copies[0].count = 200'000;
  EXPECT_THAT(gpu.advice(), HasSubstr("200000 copies to the GPU move 10.0 kB each on average"));
  gpu.profile.copies[0].seconds = 0.01;  // of a second: nothing to gain
  EXPECT_THAT(gpu.advice(), Not(HasSubstr("copies")));
  gpu.profile.device_use = DeviceUse{.overlap = 0.2, .copy_share = 0.3};
  EXPECT_THAT(gpu.advice(), HasSubstr("Copies take 30 % of a step's time, 80 % of it beside no"));
}

TEST(Advice, RanksThatWaitAreToldForWhat) {
  Invented gpu("cuda:0");
  RankUse& ranks = gpu.profile.ranks.emplace();
  ranks.count = 2;
  gpu.profile.total.median = 5e-4;
  gpu.profile.gaps = 3e-4;
  ranks.waited = 2.9e-4;
  ranks.predicted = 2.5e-4;
  EXPECT_THAT(gpu.advice(), HasSubstr("58 % of a step (290 us) waits for other ranks, where the "
                                      "network alone should take 250 us: a larger train.batch"));
  EXPECT_THAT(gpu.advice(), Not(HasSubstr("between the kernels")));
  ranks.predicted = 1e-5;
  EXPECT_THAT(gpu.advice(), HasSubstr("for the slowest"));
  ranks.waited = 5e-5;  // a tenth
  EXPECT_THAT(gpu.advice(), Not(HasSubstr("other ranks")));
  EXPECT_THAT(gpu.advice(), HasSubstr("50 % of a step (250 us) lies between the kernels"));
}

// Small networks have small roofs of every kind: the launch roof binds, but the time is spent
// elsewhere.
TEST(Advice, KernelsFarFromTheLaunchRoofAreNotLaunchBound) {
  Invented gpu("cuda:0");
  for (const size_t i : {0, 1}) gpu.bind(i, prof::Roof::launch, 0.2);
  EXPECT_THAT(gpu.advice(), Not(HasSubstr("launch-bound")));
  EXPECT_THAT(gpu.advice(), HasSubstr("far longer than the shortest"));
}

TEST(Advice, GapsOfAGpuWantMoreStepsAGraph) {
  Invented gpu("cuda:0");
  gpu.profile.gaps = 5e-5;
  EXPECT_THAT(gpu.advice(),
              HasSubstr("25 % of a step (50 us) lies between the kernels: capture more "
                        "steps in a graph"));
}

TEST(Advice, RoofsPassedByFarAreMeasuredAgain) {
  Invented busy;
  busy.bind(0, prof::Roof::barrier, 6.6);
  EXPECT_THAT(busy.advice(), HasSubstr("first reaches 660 % of its barrier roof: the ceilings of "
                                       "2026-01-31 are too low"));
  // Caches explain that for memory; skipped zeros and fewer multiplications explain it for
  // arithmetic.
  busy.bind(0, prof::Roof::memory, 6.6);
  EXPECT_THAT(busy.advice(), Not(HasSubstr("info --measure")));
  busy.bind(0, prof::Roof::compute, 2.7);
  EXPECT_THAT(busy.advice(), Not(HasSubstr("info --measure")));
  busy.bind(0, prof::Roof::compute, 3.5);
  EXPECT_THAT(busy.advice(), HasSubstr("info --measure"));
}

TEST(Advice, ThreadsThatWaitForOneAnotherAreNamed) {
  Invented uneven;
  uneven.profile.ceilings.reset();
  uneven.profile.kernels[1].balance = 0.6;
  EXPECT_THAT(uneven.advice(), HasSubstr("The threads share second unevenly (mean over busiest "
                                         "0.60)"));
}

TEST(Advice, IsTwoSentencesAtMost) {
  Invented all("cuda:0");
  all.profile.interrupted = 1e-4;
  all.profile.gaps = 5e-5;
  all.bind(0, prof::Roof::launch, 3);
  EXPECT_EQ(advise(all.profile, all.program).size(), 2u);
}

}  // namespace
}  // namespace ridgeline::engine
