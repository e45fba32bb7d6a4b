#include "ridgeline/engine/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridgeline/core/file.h"
#include "ridgeline/engine/info.h"
#include "ridgeline/engine/model_io.h"
#include "ridgeline/registry.h"
#include "tests/engine/small_set.h"
#include "tests/nn/expect_error.h"

namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using testing::small_config;
using testing::TempFolder;

RunConfig untuned(const std::string& device, Precision precision = Precision::fp32) {
  RunConfig run;
  run.device = device;
  run.precision = precision;
  run.threads = 1;
  run.tune = false;
  return run;
}

TEST(GpuSupport, SaysWhyExactlyWhenNoGpuIsUsable) {
  const DeviceSupport support = gpu_support();
  const bool usable = devices().size() > 1;
  EXPECT_EQ(support.refusal.empty(), usable) << support.refusal;
  EXPECT_EQ(choose_device("auto").kind, usable ? DeviceKind::cuda : DeviceKind::cpu);
  if (!support.devices.empty()) {
    EXPECT_TRUE(support.expected);
  }
}

TEST(Machine, AGpuThatIsNotThereIsRefusedWithTheReason) {
  if (devices().size() > 1) GTEST_SKIP() << "this machine has a GPU";
  const DeviceSupport support = gpu_support();
  const std::string reason = support.refusal.substr(0, support.refusal.find(';'));
  test::expect_error(ErrorKind::device, {"cuda:0", reason.c_str(), "--device cpu"},
                     [] { Machine machine(untuned("cuda")); });
}

TEST(Machine, AutoSpeaksOnlyWhenAGpuWasExpected) {
  if (devices().size() > 1) GTEST_SKIP() << "this machine has a GPU";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Machine(untuned("auto")).device(), Device{});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.empty(), !gpu_support().expected) << said;
}

TEST(Machine, RefusesPrecisionsTheCpuDoesNotHave) {
  for (const Precision precision : {Precision::tf32, Precision::fp32x3}) {
    test::expect_error(ErrorKind::usage,
                       {name(precision).data(), "cpu", "use one of fp64, fp32, bf16, fp16"},
                       [&] { Machine machine(untuned("cpu", precision)); });
  }
  RunConfig run = untuned("cpu", Precision::fp16);
  run.accumulate = Precision::fp16;
  test::expect_error(ErrorKind::usage, {"accumulate fp16", "cpu", "use fp32"},
                     [&] { Machine machine(run); });
}

class TensorCoreModels : public ::testing::TestWithParam<const char*> {};

TEST_P(TensorCoreModels, RunInFp32OnTheCpu) {
  const TempFolder folder;
  const Config config = small_config({std::string("run.precision=") + GetParam()});
  nn::Model model = config.build_model({6, 6});
  model.initialise(1);
  const auto bytes = nn::to_safetensors(nn::model_tensors(model),
                                        describe_model(model, config, data::Scaling{}, 4));
  write_file_atomic(folder / "model.safetensors", bytes);
  ModelOptions options;
  options.run = untuned("cpu");
  EXPECT_EQ(load_model(folder / "model.safetensors", options).config.run.precision,
            Precision::fp32);
}

INSTANTIATE_TEST_SUITE_P(Precisions, TensorCoreModels, ::testing::Values("tf32", "fp32x3"));

TEST(Info, NamesGpusOrWhyThereAreNone) {
  const TempFolder folder;
  const InfoReport report = info(untuned("cpu"), false);
  const DeviceSupport support = gpu_support();
  EXPECT_THAT(report.text, HasSubstr("GPUs  "));
  if (support.devices.empty()) {
    EXPECT_THAT(report.text, HasSubstr("none: " + support.refusal));
  }
  for (const std::string& gpu : support.devices) EXPECT_THAT(report.text, HasSubstr(gpu));
  EXPECT_THAT(report.text, HasSubstr(support.architectures));
  EXPECT_THAT(report.json, HasSubstr("\"architectures\""));
}

}  // namespace
}  // namespace ridgeline::engine
