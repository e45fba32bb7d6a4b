// Kernels that are generated for a program: their sources compile wherever NVRTC is available, and
// on a GPU they agree with the oracle for all kinds of perceptrons and small convolutional nets.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "ridgeline/cuda/generate/call.h"
#include "ridgeline/cuda/generate/compile.h"
#include "ridgeline/cuda/generate/kernels.h"
#include "ridgeline/cuda/generate/source.h"
#include "tests/cuda/compile_ahead.h"
#include "tests/cuda/generated_nets.h"
#include "tests/cuda/gpu.h"
#include "tests/support/bounds.h"
#include "tests/support/compare.h"
#include "tests/support/walk.h"

namespace ridgeline::test {
namespace {

using namespace cuda::generate;

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : otherwise;
}

constexpr Precision kPrecisions[] = {Precision::bf16, Precision::fp16, Precision::tf32,
                                     Precision::fp32, Precision::fp64};

Case case_of(TrainingNet net, Precision precision) {
  Case c = training_case(net, storage(precision));
  c.program.precision = precision;
  return c;
}

// A stand-in for a runtime: matching a program does not use it.
class NoDevice final : public Runtime {
 public:
  Device device() const override { return {DeviceKind::cuda, 0}; }
  std::string fingerprint() const override { return {}; }
  void* allocate(size_t) override { return nullptr; }
  void release(void*) noexcept override {}
  void upload(void*, const void*, size_t) override {}
  void download(void*, const void*, size_t) override {}
  void synchronize() override {}
  double time(const std::function<void()>&, double) override { return 0; }
};

// Needs no GPU, so a machine without one can check a change, too.
TEST(Generate, SourcesCompile) {
  const Nvrtc& nvrtc = Nvrtc::get();
  if (!nvrtc.refusal().empty()) GTEST_SKIP() << nvrtc.refusal();
  const NoDevice device;
  const std::pair<TrainingNet, Precision> nets[] = {
      {{.name = "small", .batch = 32, .widths = {784, 128, 10}, .update = "adam", .dropout = 0.1},
       Precision::bf16},
      {{.name = "odd", .batch = 37, .widths = {31, 67, 5}, .update = "momentum", .clip = true},
       Precision::tf32},
      {{.name = "one layer",
        .batch = 9,
        .widths = {20, 3},
        .activation = ActivationKind::gelu,
        .mse = true},
       Precision::fp64},
      {{.name = "regression",
        .batch = 40,
        .widths = {28, 64, 1},
        .update = "adam",
        .mse = true,
        .floats = true,
        .target_columns = 1},
       Precision::fp32},
      {{.name = "quantiles",
        .batch = 24,
        .widths = {7, 16, 6},
        .floats = true,
        .target_columns = 3,
        .loss_fn = LossFn::quantile},
       Precision::bf16},
      {{.name = "long", .batch = 8192, .widths = {28, 256, 200, 1}, .update = "adam", .mse = true},
       Precision::bf16},
      {{.name = "convolutions",
        .batch = 32,
        .widths = {0, 10},
        .update = "momentum",
        .image = {1, 28, 28},
        .augment = {.seed = 7, .shift = 2, .flip = true},
        .convolutions = {{.out = 8}, {.out = 16}}},
       Precision::bf16},
      {{.name = "normalised convolutions, odd",
        .batch = 150,
        .widths = {0, 20, 7},
        .update = "adam",
        .image = {2, 11, 13},
        .convolutions = {{.out = 5, .kernel = 5, .stride = 2, .pad = 2, .pool = 0, .norm = true},
                         {.out = 12, .kernel = 2, .pad = 0, .norm = true, .bias = false}}},
       Precision::fp32}};
  for (const auto& [net, precision] : nets) {
    SCOPED_TRACE(net.name);
    const Case c = case_of(net, precision);
    const NetStep step = match_net_step({c.program, 0, device});
    ASSERT_EQ(step.refusal, "");
    const Source source = write_source(step, choose_schedule(step, {}));
    const Compiled compiled = nvrtc.compile(source.text, "sm_90a");
    EXPECT_EQ(compiled.log, "");
    EXPECT_GT(compiled.code.size(), 1000u);
    EXPECT_LE(source.shared_bytes + 1024, Target{}.shared_bytes);
  }
}

// Sources of nets with convolutions are written for all kinds of them.
TEST(Generate, ConvolutionsAreWritten) {
  const NoDevice device;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const Precision precision = kPrecisions[seed % 5];
    const Case c = case_of(random_conv_net(seed, precision), precision);
    const NetStep step = match_net_step({c.program, 0, device});
    ASSERT_EQ(step.refusal, "") << seed;
    const Schedule schedule = choose_schedule(step, {});
    ASSERT_EQ(schedule.refusal, "") << seed;
    const Source source = write_source(step, schedule);
    EXPECT_LE(source.shared_bytes, shared_bytes(step, schedule)) << seed;
    EXPECT_LT(source.arguments.size(), size_t(kMostArguments));
  }
}

// Images are augmented only for convolutions.
TEST(Generate, AugmentedPerceptronsAreRefused) {
  const NoDevice device;
  TrainingNet net{.name = "augmented", .batch = 4, .widths = {30, 3}, .image = {1, 5, 6}};
  net.augment.shift = 1;
  const Case c = case_of(net, Precision::fp32);
  EXPECT_NE(match_net_step({c.program, 0, device}).refusal, "");
}

// Every position where strips may begin, for many networks: their sources differ; their sums are
// checked on a GPU.
TEST(Generate, EveryScheduleIsWritten) {
  const NoDevice device;
  int wide = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    const Case c = case_of(random_net(seed, Precision::bf16), Precision::bf16);
    const NetStep step = match_net_step({c.program, 0, device});
    ASSERT_EQ(step.refusal, "") << seed;
    for (const Tiles tiles : {Tiles::where_faster, Tiles::wide_strips}) {
      for (int chain = 0; chain <= int(step.layers.size()); ++chain) {
        const Schedule schedule = choose_schedule(step, {.tiles = tiles}, chain);
        if (!schedule.refusal.empty()) continue;
        EXPECT_EQ(schedule.chain, chain);
        wide += schedule.wide;
        const Source source = write_source(step, schedule);
        EXPECT_LE(source.shared_bytes, shared_bytes(step, schedule))
            << seed << ", strips from " << chain;
        EXPECT_LT(source.arguments.size(), size_t(kMostArguments));
      }
    }
  }
  EXPECT_GT(wide, 20);
}

class CudaGenerate : public GpuTest {};

// Needs no GPU either.
TEST(Generate, CallsCompile) {
  const Nvrtc& nvrtc = Nvrtc::get();
  if (!nvrtc.refusal().empty()) GTEST_SKIP() << nvrtc.refusal();
  const NoDevice device;
  for (const auto& [n, precision] :
       {std::pair{int64_t{1}, Precision::fp32}, std::pair{int64_t{40}, Precision::bf16}}) {
    Case c = inference_case(n, {84, 130, 33, 10}, storage(precision));
    c.program.precision = precision;
    const CallNet net = match_call({c.program, 0, device});
    ASSERT_EQ(net.refusal, "");
    const Compiled compiled = nvrtc.compile(write_call(net).text, "sm_90a");
    EXPECT_EQ(compiled.log, "");
    EXPECT_GT(compiled.code.size(), 1000u);
  }
}

// Perceptrons for a few samples and for many, in every precision.
TEST_F(CudaGenerate, CallsAgreeWithTheOracle) {
  const KernelTable table = cuda::generated_call_kernels();
  std::vector<Case> cases;
  for (const Case& c : inference_cases()) {
    if (match_call({c.program, 0, gpu()}).refusal.empty()) cases.push_back(c);
  }
  EXPECT_GE(cases.size(), 30u);
  for (const Precision precision : kPrecisions) {
    for (const int64_t n : {1, 16, 17, 100}) {
      cases.push_back(inference_case(n, {84, 130, 33, 10}, storage(precision)));
      cases.back().program.precision = precision;
    }
    cases.push_back(inference_case(1, {784, 128, 128, 128, 10}, storage(precision)));
    cases.back().program.precision = precision;
  }
  std::vector<std::string> sources;
  for (const Case& c : cases) {
    sources.push_back(write_call(match_call({c.program, 0, gpu()})).text);
  }
  compile_ahead(sources);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Exercised exercised;
    walk(c, table, gpu(), exercised);
    EXPECT_EQ(exercised["cuda.program.cluster_call"], 1);
  }
}

// Whether the oracle's bounds are useful: in short types those of many layers and steps grow beyond
// all numbers.
bool is_bounded(const Case& c) {
  const Arrays start = c.inputs();
  Bounds oracle(c.program, start.widened());
  for (int64_t pass = 0; pass < c.steps; ++pass) {
    for (size_t op = 0; op < c.program.ops.size(); ++op) oracle.run(op);
  }
  for (const ValueInfo& info : c.program.values) {
    for (const double error : oracle.error(info.value.id)) {
      if (!std::isfinite(error)) return false;
    }
  }
  return true;
}

// Tests RIDGELINE_RANDOM_NETS networks from RIDGELINE_RANDOM_SEED on, each in one precision.
void walk_random_nets(cuda::CudaRuntime& gpu, Tiles tiles, int64_t otherwise,
                      TrainingNet (*make)(uint32_t, Precision) = random_net) {
  const KernelTable table = {cuda::generated_kernel("cuda.program.persistent", tiles)};
  const int64_t count = from_environment("RIDGELINE_RANDOM_NETS", otherwise);
  const int64_t first = from_environment("RIDGELINE_RANDOM_SEED", 1);
  std::vector<Case> cases;
  for (int64_t seed = first; seed < first + count; ++seed) {
    const int of = tiles == Tiles::always ? 4 : tiles == Tiles::wide_strips ? 2 : 5;
    const Precision precision = kPrecisions[seed % of];
    cases.push_back(case_of(make(uint32_t(seed), precision), precision));
  }
  compile_ahead(cases, gpu, tiles);
  int64_t checked = 0;
  for (int64_t seed = first; seed < first + count; ++seed) {
    const Case& c = cases[size_t(seed - first)];
    if (!is_bounded(c)) continue;
    ++checked;
    SCOPED_TRACE(fmt::format("seed {} in {}", seed, name(c.program.precision)));
    Exercised exercised;
    walk(c, table, gpu, exercised);
    EXPECT_EQ(exercised["cuda.program.persistent"], 1);
  }
  EXPECT_GE(2 * checked, count) << "hardly any net has bounds";
}

TEST_F(CudaGenerate, RandomNetsAgreeWithTheOracle) {
  walk_random_nets(gpu(), Tiles::where_faster, 10);
}
// Networks small enough for the oracle are too small for tiles to be faster.
TEST_F(CudaGenerate, RandomNetsInTilesAgreeWithTheOracle) {
  walk_random_nets(gpu(), Tiles::always, 20);
}
TEST_F(CudaGenerate, RandomNetsInWideStripsAgreeWithTheOracle) {
  walk_random_nets(gpu(), Tiles::wide_strips, 20);
}

// Long batches, of whose samples a warp gathers several units, and whose transposed rows are
// padded.
TEST_F(CudaGenerate, LongBatchesAgreeWithTheOracle) {
  for (const Tiles tiles : {Tiles::where_faster, Tiles::always, Tiles::wide_strips}) {
    std::vector<Case> cases;
    for (const Precision precision : {Precision::bf16, Precision::tf32, Precision::fp32}) {
      TrainingNet net{.name = "long", .batch = 1000, .widths = {784, 40, 10}, .update = "momentum"};
      net.masters = size_of(storage(precision)) == 2;
      if (tiles != Tiles::wide_strips || net.masters) cases.push_back(case_of(net, precision));
    }
    compile_ahead(cases, gpu(), tiles);
    for (const Case& c : cases) {
      SCOPED_TRACE(fmt::format("{}, tiles {}", name(c.program.precision), int(tiles)));
      Exercised exercised;
      walk(c, {cuda::generated_kernel("cuda.program.persistent", tiles)}, gpu(), exercised);
      EXPECT_EQ(exercised["cuda.program.persistent"], 1);
    }
  }
}
TEST_F(CudaGenerate, ConvolutionsAgreeWithTheOracle) {
  const KernelTable table = cuda::generated_kernels();
  std::vector<Case> cases;
  for (const Precision precision : kPrecisions) {
    for (TrainingNet net : conv_nets()) {
      net.masters = size_of(storage(precision)) == 2 && net.batch > 4;
      cases.push_back(case_of(net, precision));
    }
  }
  compile_ahead(cases, gpu());
  size_t checked = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{} in {}", c.name, name(c.program.precision)));
    if (!is_bounded(c)) continue;
    ++checked;
    Exercised exercised;
    walk(c, table, gpu(), exercised);
    EXPECT_EQ(exercised["cuda.program.persistent"], 1);
  }
  EXPECT_GE(4 * checked, 3 * cases.size()) << "hardly any net has bounds";
}
TEST_F(CudaGenerate, RandomConvolutionsAgreeWithTheOracle) {
  walk_random_nets(gpu(), Tiles::where_faster, 20, random_conv_net);
}

}  // namespace
}  // namespace ridgeline::test
