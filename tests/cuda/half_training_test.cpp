// Runs in bf16 and fp16 through the engine on the GPU: which kernels they reach, what they learn,
// and that they repeat and resume to the bit.
#include <gtest/gtest.h>

#include <cstring>

#include "ridgeline/data/locate.h"
#include "ridgeline/engine/train/checkpoint.h"
#include "ridgeline/engine/train/train.h"
#include "ridgeline/engine/train/trainer.h"
#include "tests/cuda/gpu.h"
#include "tests/engine/small_run.h"

namespace ridgeline::engine {
namespace {

using testing::bits;
using testing::quiet;
using testing::small_config;
using testing::small_part;
using testing::small_set;
using testing::TempFolder;
using testing::tensor_bits;

using Sets = std::vector<std::string>;

struct Kind {
  const char *name, *precision, *weights, *loss_scale;
};
constexpr Kind kKinds[] = {{"bf16", "bf16", "master", "none"},
                           {"bf16Half", "bf16", "half", "none"},
                           {"fp16", "fp16", "master", "dynamic"},
                           {"fp16Half", "fp16", "half", "dynamic"},
                           {"fp16Unscaled", "fp16", "master", "none"}};

Config gpu_config(const Kind& kind, Sets more = {}) {
  more.insert(more.end(), {"run.device=cuda", std::string("run.precision=") + kind.precision,
                           std::string("run.weights=") + kind.weights,
                           std::string("run.loss_scale=") + kind.loss_scale});
  return small_config(more);
}

// A perceptron that the whole-step kernels take.
Sets perceptron() {
  return {
      "model.layers=[{type=\"linear\",out=96},{type=\"relu\"},{type=\"linear\",out=64},"
      "{type=\"relu\"},{type=\"linear\",out=4}]",
      "train.optimizer={type=\"sgd\",lr=0.1}", "train.clip_norm=0"};
}

class CudaHalves : public test::GpuTest {};

// Planned by measurement, with all kernels allowed.
TEST_F(CudaHalves, PerceptronsReachTheWholeStepKernels) {
  if (gpu().architecture() != 90) GTEST_SKIP() << "the whole-step kernels are for sm_90";
  const TempFolder folder;
  for (const Kind& kind : kKinds) {
    if (std::strcmp(kind.loss_scale, "none") != 0) continue;
    SCOPED_TRACE(kind.name);
    Sets sets = perceptron();
    sets.push_back("run.tune=true");
    const Config config = gpu_config(kind, sets);
    Machine machine(config.run);
    Trainer trainer(machine, config, small_set());
    const auto kernels = trainer.runner().kernel_names();
    ASSERT_EQ(kernels.size(), 1u);
    EXPECT_TRUE(kernels.front().starts_with("cuda.mlp_train.")) << kernels.front();
  }
}

// In one launch or in several, repeatedly: kernels of whole steps and kernels of single ops.
TEST_F(CudaHalves, LaunchesOfAnyLengthMakeTheSameSteps) {
  const TempFolder folder;
  for (const Kind& kind : kKinds) {
    for (const bool whole : {false, true}) {
      SCOPED_TRACE(std::string(kind.name) + (whole ? " perceptron" : ""));
      const Config config = gpu_config(kind, whole ? perceptron() : Sets{});
      Machine machine(config.run);
      std::string want;
      for (const int64_t most : {1, 7, 100}) {
        Trainer trainer(machine, config, small_set());
        while (trainer.step() < 30) trainer.advance(std::min<int64_t>(most, 30 - trainer.step()));
        const std::string got = bits(trainer.snapshot());
        if (want.empty()) want = got;
        EXPECT_EQ(got == want, true) << "launches of up to " << most;
      }
    }
  }
}

TEST_F(CudaHalves, ResumeBitForBit) {
  for (const Kind& kind : kKinds) {
    for (const bool whole : {false, true}) {
      SCOPED_TRACE(std::string(kind.name) + (whole ? " perceptron" : ""));
      const TempFolder folder;
      const auto run = [&](const char* out, const char* steps, bool resume) {
        Sets sets = whole ? perceptron() : Sets{};
        sets.push_back("train.schedule={type=\"cosine\",epochs=4}");  // else it ends with max_steps
        sets.push_back(std::string("train.max_steps=") + steps);
        TrainOptions options = quiet(folder / out);
        options.resume = resume;
        train(gpu_config(kind, sets), options);
      };
      run("whole", "40", false);
      run("parts", "17", false);
      run("parts", "40", true);
      EXPECT_EQ(tensor_bits(folder / "parts/checkpoint.safetensors") ==
                    tensor_bits(folder / "whole/checkpoint.safetensors"),
                true);
    }
  }
}

// The full batches of an epoch and its partial one are launches of their own.
TEST_F(CudaHalves, TheMeanLossIsThatOfAllStepsOfTheEpoch) {
  const TempFolder folder;
  const Kind fp64{"", "fp64", "master", "none"};
  const TrainReport there = train(gpu_config(fp64), quiet());
  const TrainReport here = train(small_config({"run.precision=fp64"}), quiet());
  EXPECT_NEAR(there.train_loss, here.train_loss, 1e-9 * here.train_loss);
  EXPECT_EQ(there.train_accuracy, here.train_accuracy);
}

TEST_F(CudaHalves, AnOverflowIsSkippedAndHalvesTheScale) {
  const TempFolder folder;
  Config config = gpu_config(kKinds[2]);
  config.run.loss_scale.start = 0x1p40;
  Machine machine(config.run);
  Trainer trainer(machine, config, small_set());
  const Snapshot before = trainer.snapshot();
  trainer.advance(1);
  EXPECT_EQ(trainer.skipped_steps(), 1);
  EXPECT_EQ(trainer.loss_scale(), 0x1p39);
  const Snapshot after = trainer.snapshot();
  for (size_t i = 0; i < trainer.runner().lowered().params.size(); ++i) {
    const Tensor &a = before.items[i].value.view(), &b = after.items[i].value.view();
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes()), 0) << before.items[i].name;
  }
  while (trainer.step() < 200) trainer.advance(200 - trainer.step());
  EXPECT_GT(trainer.skipped_steps(), 10);
  EXPECT_LT(trainer.skipped_steps(), 60);
  EXPECT_GT(trainer.evaluate().accuracy, 0.9);
}

TEST_F(CudaHalves, ReachTheAccuracyOfFp32OnMnist) {
  const TempFolder folder;
  TrainOptions options = quiet();
  try {
    options.set = std::make_shared<data::DataSet>(data::load("mnist", {}));
  } catch (const Error&) {
    GTEST_SKIP() << "no MNIST here; set RIDGELINE_DATA";
  }
  for (const bool adam : {false, true}) {
    Sets network = perceptron();
    network.insert(network.end(), {"model.layers.4.out=10", "train.batch=64", "train.epochs=3",
                                   "data.name=mnist", "run.tune=true"});
    if (adam) network.push_back("train.optimizer={type=\"adam\",lr=0.002}");
    const Config fp32 = gpu_config({"", "fp32", "master", "none"}, network);
    const double want = train(fp32, options).test.accuracy;
    EXPECT_GT(want, 0.94);
    for (const Kind& kind : kKinds) {
      const double got = train(gpu_config(kind, network), options).test.accuracy;
      // A bf16 weight has eight bits: with small steps it stops changing when the step is below
      // half an ulp.
      const bool coarse = kind.name == std::string("bf16Half");
      EXPECT_NEAR(got, want, coarse ? 0.02 : 0.005) << kind.name << (adam ? " adam" : " sgd");
      RecordProperty(std::string(kind.name) + (adam ? "_adam" : "_sgd"), std::to_string(got));
    }
  }
}

}  // namespace
}  // namespace ridgeline::engine
