// Runs in bf16 and fp16: they learn what fp32 learns, their copies follow the weights, and a loss
// scale that is too large costs a few steps but not the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ridgeline/data/locate.h"
#include "ridgeline/engine/train/checkpoint.h"
#include "ridgeline/engine/train/train.h"
#include "ridgeline/engine/train/trainer.h"
#include "tests/engine/small_run.h"

namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using testing::quiet;
using testing::slurp;
using testing::small_config;
using testing::small_set;
using testing::TempFolder;

using Sets = std::vector<std::string>;

struct Kind {
  const char *name, *precision, *weights;
};
class Halves : public ::testing::TestWithParam<Kind> {
 protected:
  Sets sets(Sets more = {}) const {
    more.push_back(std::string("run.precision=") + GetParam().precision);
    more.push_back(std::string("run.weights=") + GetParam().weights);
    return more;
  }
};

TEST_P(Halves, LearnAnEasySet) {
  const TempFolder folder;
  const TrainReport report = train(small_config(sets({"train.epochs=30"})), quiet(folder / "run"));
  EXPECT_GT(report.test.accuracy, 0.95);
  // A model file holds fp32 in every case, and eval computes in the precision of the run.
  const auto file = nn::TensorFile::read(folder / "run/model.safetensors");
  for (const nn::TensorEntry& entry : file.tensors()) EXPECT_EQ(entry.dtype, DType::fp32);
  ModelOptions options;
  options.run = small_config().run;
  LoadedModel loaded = load_model(folder / "run", options);
  EXPECT_EQ(loaded.config.run.precision, parse_precision(GetParam().precision));
  Machine machine(loaded.config.run);
  const auto set = small_set();
  nn::LowerOptions lower = lower_options(loaded.config, loaded.scaling, loaded.classes);
  lower.mode = nn::Mode::evaluate;
  const Weights weights(machine.runtime(), loaded.model, nn::lower(loaded.model, lower));
  Evaluator evaluator(machine, loaded.config, loaded.model, set->test, loaded.scaling);
  EXPECT_EQ(evaluator.run(weights).correct, report.test.correct);
}

// A short run on real digits ends within half a point of fp32.
TEST_P(Halves, ReachTheAccuracyOfFp32OnMnist) {
  const TempFolder folder;
  TrainOptions options = quiet();
  try {
    options.set = std::make_shared<data::DataSet>(data::load("mnist", {}));
  } catch (const Error&) {
    GTEST_SKIP() << "no MNIST here; set RIDGELINE_DATA";
  }
  const Sets network{"model.layers.0.out=24", "model.layers.2.p=0", "model.layers.3.out=10",
                     "train.batch=64",        "train.epochs=1",     "train.max_steps=250",
                     "train.clip_norm=0",     "data.name=mnist"};
  const double fp32 = train(small_config(network), options).test.accuracy;
  const double half = train(small_config(sets(network)), options).test.accuracy;
  EXPECT_GT(fp32, 0.85);
  EXPECT_NEAR(half, fp32, 0.005);
}

INSTANTIATE_TEST_SUITE_P(Precisions, Halves,
                         ::testing::Values(Kind{"bf16", "bf16", "master"},
                                           Kind{"fp16", "fp16", "master"},
                                           Kind{"bf16Half", "bf16", "half"},
                                           Kind{"fp16Half", "fp16", "half"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(HalfWeights, CopiesAreTheRoundedWeights) {
  const TempFolder folder;
  const Config config = small_config({"run.precision=bf16"});
  Machine machine(config.run);
  Trainer trainer(machine, config, small_set());
  const auto expect_rounded = [&] {
    const Snapshot now = trainer.snapshot();
    for (const auto& copy : trainer.runner().lowered().copies) {
      const auto narrow = trainer.runner().read<Bf16>(copy.value);
      const auto wide = now.items[copy.param].value.span<float>();
      for (size_t i = 0; i < narrow.size(); ++i) ASSERT_EQ(narrow[i].bits, Bf16(wide[i]).bits) << i;
    }
  };
  expect_rounded();
  const Snapshot start = trainer.snapshot();
  while (trainer.step() < 20) trainer.advance(20 - trainer.step());
  expect_rounded();
  trainer.restore(start, 0);
  expect_rounded();
}

Snapshot weights_only(const Trainer& trainer, size_t params) {
  Snapshot all = trainer.snapshot();
  all.items.resize(params);
  return all;
}

TEST(LossScale, AnOverflowIsSkippedAndHalvesTheScale) {
  const TempFolder folder;
  Config config = small_config({"run.precision=fp16"});
  config.run.loss_scale.start = 0x1p40;  // overflows until it has come down
  Machine machine(config.run);
  Trainer trainer(machine, config, small_set());
  const size_t params = trainer.runner().lowered().params.size();
  const Snapshot before = weights_only(trainer, params);
  trainer.advance(1);
  EXPECT_TRUE(std::isfinite(trainer.losses().front()));
  EXPECT_EQ(trainer.skipped_steps(), 1);
  EXPECT_EQ(trainer.loss_scale(), 0x1p39);
  const Snapshot after = weights_only(trainer, params);
  for (size_t i = 0; i < params; ++i) {
    const Tensor &a = before.items[i].value.view(), &b = after.items[i].value.view();
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes()), 0) << before.items[i].name;
  }
  while (trainer.step() < 200) trainer.advance(200 - trainer.step());
  EXPECT_GT(trainer.skipped_steps(), 10);
  EXPECT_LT(trainer.skipped_steps(), 60);
  EXPECT_EQ(trainer.loss_scale(), std::ldexp(1.0, 40 - int(trainer.skipped_steps())));
  EXPECT_GT(trainer.evaluate().accuracy, 0.9);
}

TEST(LossScale, IsReportedAndKeptInMetrics) {
  const TempFolder folder;
  Config config = small_config({"run.precision=fp16"});
  config.run.loss_scale.start = 0x1p30;
  const TrainReport report = train(config, quiet(folder / "run"));
  EXPECT_GT(report.skipped_steps, 0);
  EXPECT_EQ(report.loss_scale, std::ldexp(1.0, 30 - int(report.skipped_steps)));
  EXPECT_EQ(to_json(report)["skipped_steps"], report.skipped_steps);
  EXPECT_THAT(slurp(folder / "run/metrics.jsonl"), HasSubstr("\"skipped_steps\":"));
  EXPECT_THAT(slurp(folder / "run/metrics.jsonl"), HasSubstr("\"loss_scale\":"));
}

std::string message_of(const Config& config, const std::filesystem::path& out) {
  try {
    train(config, quiet(out));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::numeric) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// Weights so large that the gradient of the hidden layer overflows at any scale.
TEST(LossScale, ARunThatOverflowsAtAnyScaleGivesUp) {
  const TempFolder folder;
  const Sets large{"model.layers.0.init={type=\"normal\",std=1e-7}",
                   "model.layers.0.bias_init={type=\"normal\",std=1e-4}",
                   "model.layers.3.init={type=\"uniform\",bound=6e4}",
                   "train.batch=1",
                   "run.precision=fp16",
                   "train.checkpoint_steps=20"};
  const std::string dynamic = message_of(small_config(large), folder / "dynamic");
  EXPECT_THAT(dynamic, HasSubstr("below 1"));
  EXPECT_THAT(dynamic, HasSubstr("is kept"));
  Sets fixed = large;
  fixed.push_back("run.loss_scale=4096");
  EXPECT_THAT(message_of(small_config(fixed), folder / "fixed"), HasSubstr("run.loss_scale 4096"));
}

TEST(HalfConfig, OptionsHaveNamesAndReadBack) {
  const Config config =
      small_config({"run.precision=fp16", "run.weights=half", "run.loss_scale=128"});
  EXPECT_EQ(config.run.weights, nn::WeightKind::half);
  EXPECT_EQ(config.run.loss_scale.kind, nn::LossScale::Kind::fixed);
  const Config again = parse_config(to_toml(config), "printed");
  EXPECT_EQ(again.run.weights, config.run.weights);
  EXPECT_EQ(again.run.loss_scale, config.run.loss_scale);
  EXPECT_EQ(small_config({"run.precision=fp16"}).run.loss_scale.kind, nn::LossScale::Kind::dynamic);
  EXPECT_EQ(small_config({"run.precision=bf16"}).run.loss_scale.kind, nn::LossScale::Kind::none);
  const auto refusal = [](const Sets& sets) -> std::string {
    try {
      small_config(sets);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal({"run.weights=half"}), HasSubstr("run.weights"));
  EXPECT_THAT(refusal({"run.weights=half"}), HasSubstr("bf16 or fp16 only, not fp32"));
  EXPECT_THAT(refusal({"run.loss_scale=dynamic"}), HasSubstr("run.loss_scale"));
  EXPECT_THAT(refusal({"run.precision=bf16", "run.accumulate=fp16"}), HasSubstr("fp16 only"));
  EXPECT_THAT(refusal({"run.precision=fp16", "run.loss_scale=0.5"}), HasSubstr("run.loss_scale"));
}

}  // namespace
}  // namespace ridgeline::engine
