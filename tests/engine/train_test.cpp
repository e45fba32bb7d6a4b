#include "ridgeline/engine/train/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ridgeline/engine/train/checkpoint.h"
#include "ridgeline/engine/train/diagnose.h"
#include "ridgeline/engine/train/train_run.h"
#include "tests/engine/small_run.h"

namespace ridgeline::engine {
namespace {

using testing::bits;
using ::testing::HasSubstr;
using testing::quiet;
using testing::slurp;
using testing::small_config;
using testing::small_set;
using testing::TempFolder;
using testing::tensor_bits;

template <typename F>
std::string message_of(ErrorKind kind, F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.kind()), std::string(name(kind))) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// Steps of about a millisecond: about 100 per launch.
TEST(Train, VaryingStepTimesGiveFewLaunchSizes) {
  std::set<int64_t> sizes;
  int64_t launches = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (int64_t step = 0; step < 469; ++launches) {
      const double seconds = 1e-3 * (0.7 + 0.01 * double(launches * 37 % 100));
      const int64_t most = std::min<int64_t>(469 - step, 128 - step % 128);
      const int64_t steps = launch_steps(most, seconds);
      ASSERT_GE(steps, 1);
      ASSERT_LE(steps, most);
      ASSERT_TRUE(steps == most || double(steps) * seconds <= 0.1);
      sizes.insert(steps);
      step += steps;
    }
  }
  EXPECT_LE(sizes.size(), 8u);
  EXPECT_LE(launches, 20 * 8);  // of 50 ms and more, except at the end of an epoch
  EXPECT_EQ(launch_steps(128, 0), 1);
  EXPECT_EQ(launch_steps(128, 5), 1);
  EXPECT_EQ(launch_steps(85, 1e-5), 85);
}

TEST(Trainer, LaunchesOfAnyLengthMakeTheSameSteps) {
  const TempFolder folder;
  const Config config = small_config();
  Machine machine(config.run);
  Trainer one(machine, config, small_set()), many(machine, config, small_set());
  EXPECT_EQ(one.steps_per_epoch(), 13);  // 12 of 16 samples, one of 11
  std::vector<double> losses_one, losses_many;
  while (one.step() < 30) {
    EXPECT_EQ(one.advance(1), 1);
    losses_one.push_back(one.losses().front());
  }
  while (many.step() < 30) {
    many.advance(30 - many.step());
    losses_many.insert(losses_many.end(), many.losses().begin(), many.losses().end());
  }
  EXPECT_EQ(losses_one, losses_many);
  EXPECT_EQ(bits(one.snapshot()), bits(many.snapshot()));
  EXPECT_GT(one.clipped_steps(), 0);
}

// y = (3 x0 - 2 x1, x1 + 1), of floats.
data::SampleSet plane(int64_t samples, uint64_t seed) {
  data::SampleSet set;
  set.inputs = HostTensor(DType::fp32, {samples, 2});
  set.targets = HostTensor(DType::fp32, {samples, 2});
  const Philox random{seed, streams::kSample};
  for (int64_t i = 0; i < samples; ++i) {
    float* x = set.inputs.span<float>().data() + 2 * i;
    float* y = set.targets.span<float>().data() + 2 * i;
    for (int64_t j = 0; j < 2; ++j) x[j] = float(random.word(uint64_t(2 * i + j)) % 1000) / 500 - 1;
    y[0] = 3 * x[0] - 2 * x[1];
    y[1] = x[1] + 1;
  }
  return set;
}

TEST(Train, ValuesOfFloatsAreLearnt) {
  auto set = std::make_shared<data::DataSet>();
  set->train = plane(203, 1);
  set->test = plane(60, 2);
  const Config config = parse_config(R"([data]
name = "plane"
[model]
layers = [{ type = "linear", out = 2 }]
[train]
batch = 16
epochs = 60
loss = "mse"
optimizer = { type = "adam", lr = 0.05 }
[run]
tune = false
device = "cpu"
)",
                                     "plane.toml");
  const TempFolder folder;
  TrainOptions options = quiet(folder / "run");
  options.set = set;
  options.report = folder / "report";
  const TrainReport report = train(config, options);
  EXPECT_LT(report.test.loss, 1e-4);
  EXPECT_TRUE(std::isnan(report.test.accuracy));
  EXPECT_EQ(summary(report).find("accuracy"), std::string::npos);
  EXPECT_FALSE(to_json(report).contains("accuracy"));
  EXPECT_EQ(slurp(folder / "run/metrics.jsonl").find("nan"), std::string::npos);
  // A set that stays on the host and is copied window by window makes the same steps.
  Config streamed = config;
  streamed.data.resident = false;
  Machine machine(config.run);
  Trainer one(machine, config, set), other(machine, streamed, set);
  for (Trainer* each : {&one, &other}) {
    while (each->step() < 20) each->advance(20 - each->step());
  }
  EXPECT_EQ(bits(one.snapshot()), bits(other.snapshot()));
  Config wrong = config;
  wrong.layers =
      parse_config("data.name = \"x\"\n[model]\nlayers = [{type=\"linear\",out=3}]", "x").layers;
  EXPECT_THAT(message_of(ErrorKind::usage, [&] { Trainer(machine, wrong, set); }),
              HasSubstr("set its out to 2"));
}

TEST(Trainer, RestoredSnapshotGivesTheSameFuture) {
  const TempFolder folder;
  const Config config = small_config();
  Machine machine(config.run);
  Trainer trainer(machine, config, small_set());
  while (trainer.step() < 10) trainer.advance(10 - trainer.step());
  const Snapshot middle = trainer.snapshot();
  while (trainer.step() < 20) trainer.advance(20 - trainer.step());
  const std::string first = bits(trainer.snapshot());
  EXPECT_NE(first, bits(middle));
  trainer.restore(middle, 10);
  while (trainer.step() < 20) trainer.advance(20 - trainer.step());
  EXPECT_EQ(bits(trainer.snapshot()), first);
}

TEST(Train, LearnsAndReports) {
  const TempFolder folder;
  const TrainReport report = train(small_config({"train.epochs=30"}), quiet());
  EXPECT_GT(report.test.accuracy, 0.95);
  EXPECT_EQ(report.steps, 30 * 13);
  EXPECT_EQ(report.test.samples, 150);
  EXPECT_GT(report.limit_fraction, 0);
  const nlohmann::json json = to_json(report);
  for (const char* key : {"accuracy", "loss", "steps_per_second", "us_per_step", "flops_per_second",
                          "limit_fraction", "threads", "device", "kernels", "tuning_seconds"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_NEAR(json["us_per_step"].get<double>() * json["steps_per_second"].get<double>(), 1e6, 1);
}

// 203 samples in batches of 16 leave 11; 150 test samples are one batch, and 521 leave nine.
TEST(Train, JsonHasTheKernelsOfEveryPlan) {
  const TempFolder folder;
  TrainOptions options = quiet();
  auto set = std::make_shared<data::DataSet>();
  set->train = testing::small_part(203, 7);
  set->test = testing::small_part(521, 8);
  options.set = set;
  const auto kernels_of = [&](const std::vector<std::string>& sets, const char* key) {
    return to_json(train(small_config(sets), options)).at(key).get<std::vector<std::string>>();
  };
  for (const char* key :
       {"kernels", "kernels_last_batch", "kernels_evaluation", "kernels_evaluation_last_batch"}) {
    EXPECT_FALSE(kernels_of({}, key).empty()) << key;
  }
  const std::vector<std::string> none;
  EXPECT_EQ(kernels_of({"train.drop_last=true"}, "kernels_last_batch"), none);
  options.set = small_set();
  EXPECT_EQ(kernels_of({}, "kernels_evaluation_last_batch"), none);
}

TEST(Train, LogsEveryStepWhenAsked) {
  const TempFolder folder;
  train(small_config({"train.log_steps=1", "train.epochs=2"}), quiet(folder / "each"));
  train(small_config({"train.log_steps=5", "train.epochs=2"}), quiet(folder / "some"));
  const auto logged = [&](const char* run) {
    std::map<int64_t, double> losses;
    std::istringstream lines(slurp(folder / run / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json["event"] == "train") losses[json["step"]] = json["loss"];
    }
    return losses;
  };
  const auto each = logged("each"), some = logged("some");
  ASSERT_EQ(each.size(), 26u);
  std::vector<int64_t> steps;
  for (const auto& [step, loss] : some) steps.push_back(step);
  EXPECT_EQ(steps, (std::vector<int64_t>{5, 10, 13, 18, 23, 26}));
  // The mean over the epoch's last three steps, of which the last has 11 samples.
  EXPECT_NEAR(some.at(13), (16 * each.at(11) + 16 * each.at(12) + 11 * each.at(13)) / 43, 1e-12);
}

class Resume : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Resume, HalvesEqualTheWholeBitForBit) {
  auto sets = GetParam();
  sets.push_back("train.schedule={type=\"cosine\",epochs=4}");  // else it ends with max_steps
  sets.push_back("train.max_steps=40");
  // A plan that is measured again may have other kernels and other roundings: the run is then
  // repeated.
  auto place = std::make_unique<TempFolder>();
  for (int attempt = 0;; ++attempt) {
    sets.back() = "train.max_steps=40";
    const auto kernels = train(small_config(sets), quiet(*place / "whole")).kernels;
    sets.back() = "train.max_steps=17";
    if (train(small_config(sets), quiet(*place / "parts")).kernels == kernels) break;
    ASSERT_LT(attempt, 5) << "no two runs were planned alike";
    place = std::make_unique<TempFolder>();
  }
  const TempFolder& folder = *place;
  sets.back() = "train.max_steps=40";
  TrainOptions options = quiet(folder / "parts");
  options.resume = true;
  const TrainReport report = train(small_config(sets), options);
  EXPECT_EQ(report.steps, 40);
  EXPECT_EQ(report.steps_here, 23);
  EXPECT_EQ(tensor_bits(folder / "parts/checkpoint.safetensors"),
            tensor_bits(folder / "whole/checkpoint.safetensors"));
  EXPECT_EQ(tensor_bits(folder / "parts/model.safetensors"),
            tensor_bits(folder / "whole/model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, Resume,
    ::testing::Values(std::vector<std::string>{},
                      std::vector<std::string>{"train.optimizer={type=\"sgd\",lr=0.1,momentum=0.9}",
                                               "train.clip_norm=0"},
                      std::vector<std::string>{"run.precision=\"fp64\"", "run.tune=true"},
                      std::vector<std::string>{"run.precision=bf16"},
                      std::vector<std::string>{"run.precision=fp16"},
                      std::vector<std::string>{"run.precision=bf16", "run.weights=half"},
                      std::vector<std::string>{
                          "run.precision=fp16", "run.weights=half",
                          "train.optimizer={type=\"sgd\",lr=0.1,momentum=0.9}"},
                      std::vector<std::string>{"train.optimizer={type=\"adamw\",lr=0.01}",
                                               "train.drop_last=true", "run.tune=true"}));

TEST(Resume, MetricsHaveEachStepOnce) {
  const TempFolder folder;
  train(small_config({"train.max_steps=13", "train.checkpoint_steps=5"}), quiet(folder / "run"));
  // As if killed after step 10: the newest checkpoint is lost, the metrics of step 13 are there.
  std::filesystem::remove(folder / "run/checkpoint.safetensors");
  TrainOptions options = quiet(folder / "run");
  options.resume = true;
  ::testing::internal::CaptureStderr();
  train(small_config({"train.max_steps=26"}), options);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("checkpoint before it"));
  std::vector<int64_t> train_steps;
  std::istringstream lines(slurp(folder / "run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json["event"] == "train") train_steps.push_back(json["step"]);
  }
  EXPECT_EQ(train_steps, (std::vector<int64_t>{13, 26}));
}

TEST(Resume, SaysWhatChanged) {
  const TempFolder folder;
  train(small_config({"train.max_steps=5"}), quiet(folder / "run"));
  TrainOptions options = quiet(folder / "run");
  options.resume = true;
  const auto attempt = [&](const std::vector<std::string>& sets) {
    return message_of(ErrorKind::usage, [&] { train(small_config(sets), options); });
  };
  EXPECT_THAT(attempt({"train.seed=9"}), HasSubstr("train.seed"));
  EXPECT_THAT(attempt({"model.layers.0.out=18"}), HasSubstr("model.layers"));
  EXPECT_THAT(attempt({"train.optimizer.lr=0.5"}), HasSubstr("train.optimizer"));
  auto other = std::make_shared<data::DataSet>();
  other->train = testing::small_part(203, 99);
  other->test = testing::small_part(10, 98);
  options.set = other;
  EXPECT_THAT(attempt({}), HasSubstr("training data"));
}

TEST(Resume, TornNewestFallsBack) {
  const TempFolder folder;
  const auto out = folder / "run";
  train(small_config({"train.max_steps=20", "train.checkpoint_steps=10"}), quiet(out));
  const std::string whole = slurp(out / "checkpoint.safetensors");
  const std::string good = tensor_bits(out / "checkpoint.safetensors");
  std::ofstream(out / "checkpoint.safetensors", std::ios::binary)
      << whole.substr(0, whole.size() / 2);
  const auto left_over = out / "checkpoint.safetensors.0123456789abcdef.tmp";
  std::ofstream(left_over) << "left over";
  std::ofstream(out / "checkpoint.safetensors.tmp") << "a user's own";
  TrainOptions options = quiet(out);
  options.resume = true;
  ::testing::internal::CaptureStderr();
  const TrainReport report = train(small_config({"train.max_steps=20"}), options);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("checkpoint.safetensors"));
  EXPECT_EQ(report.steps_here, 10);
  EXPECT_EQ(report.steps, 20);
  EXPECT_EQ(tensor_bits(out / "checkpoint.safetensors"), good);
  EXPECT_FALSE(std::filesystem::exists(left_over));
  EXPECT_EQ(slurp(out / "checkpoint.safetensors.tmp"), "a user's own");
}

void expect_finite(const std::filesystem::path& file) {
  const nn::TensorFile kept = nn::TensorFile::read(file);
  for (const nn::TensorEntry& entry : kept.tensors()) {
    if (entry.dtype != DType::fp32) continue;
    for (size_t i = 0; i < entry.data.size(); i += 4) {
      float value;
      std::memcpy(&value, entry.data.data() + i, 4);
      ASSERT_TRUE(std::isfinite(value)) << entry.name;
    }
  }
}

TEST(Train, NanNamesStepAndLayer) {
  const TempFolder folder;
  const Config config = small_config(
      {"train.optimizer={type=\"sgd\",lr=1e30}", "train.clip_norm=0", "train.checkpoint_steps=1"});
  const std::string message =
      message_of(ErrorKind::numeric, [&] { train(config, quiet(folder / "run")); });
  EXPECT_THAT(message, ::testing::ContainsRegex("at step [0-9]+"));
  EXPECT_THAT(message, ::testing::ContainsRegex("layer [0-9] \\((linear|relu|dropout)\\)"));
  EXPECT_THAT(message, HasSubstr("train.optimizer.lr"));
  // The kept checkpoint is good.
  EXPECT_THAT(message, HasSubstr("is kept"));
  expect_finite(folder / "run/checkpoint.safetensors");
}

// No step follows the last one: only the evaluation shows its effect on the weights.
TEST(Train, ANaNAfterTheLastStepFailsTheRun) {
  const TempFolder folder;
  const Config config =
      small_config({"train.max_steps=1", "train.clip_norm=0", "train.schedule={type=\"constant\"}",
                    "train.optimizer={type=\"sgd\",lr=1e38}"});
  const std::string message =
      message_of(ErrorKind::numeric, [&] { train(config, quiet(folder / "run")); });
  EXPECT_THAT(message, HasSubstr("the test loss is"));
  EXPECT_THAT(message, HasSubstr("at step 1 (epoch 1)"));
  EXPECT_THAT(message, ::testing::ContainsRegex("layer [0-9]"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/model.safetensors"));
  EXPECT_THAT(slurp(folder / "run/metrics.jsonl"), HasSubstr("\"loss\":null"));
}

void expect_named(const std::string& message, const char* tensor) {
  EXPECT_THAT(message, HasSubstr(std::string(tensor) + " has values that are not finite"));
  EXPECT_THAT(message, HasSubstr("the loss is finite"));
  EXPECT_THAT(message, HasSubstr("train.optimizer.lr"));
}

// Weights this large overflow the squares of their gradients, while Adam's first update, the
// weights and the losses of training and test stay finite.
TEST(Train, ARunWithNonFiniteValuesFailsEvenIfItsLossIsFinite) {
  const TempFolder folder;
  const Config config = small_config(
      {"model.layers.0.init={type=\"normal\",std=1e21}", "train.clip_norm=0", "train.max_steps=1"});
  for (const std::filesystem::path& out : {folder / "run", std::filesystem::path()}) {
    expect_named(message_of(ErrorKind::numeric, [&] { train(config, quiet(out)); }), "3.weight.v");
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "run/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/checkpoint.safetensors"));
}

// The first update makes the weights so large that the second step overflows the running variances.
// It is seen after step 2, and after step 3 no loss has shown it.
TEST(Train, NonFiniteWeightsEndTheRunAndLeaveTheLastGoodCheckpoint) {
  const TempFolder folder;
  const Config config = small_config(
      {"model.layers=[{type=\"linear\",out=17},{type=\"batchnorm\",affine=false},{type=\"relu\"},"
       "{type=\"linear\",out=4}]",
       "train.optimizer={type=\"adam\",lr=1e22}", "train.schedule={type=\"constant\"}",
       "train.checkpoint_steps=1"});
  const std::string message =
      message_of(ErrorKind::numeric, [&] { train(config, quiet(folder / "run")); });
  expect_named(message, "1.running_var");
  EXPECT_THAT(message, HasSubstr("after step 3 (epoch 1)"));
  EXPECT_THAT(message,
              HasSubstr("the checkpoint of step 1 is kept in " + (folder / "run").string()));
  expect_finite(folder / "run/checkpoint.safetensors");
}

// A NaN that the reference kernels do not produce is no layer's fault.
TEST(Train, DiagnosisOfASoundStepNamesNoLayer) {
  Machine machine(small_config().run);
  Trainer trainer(machine, small_config(), small_set());
  const Snapshot start = trainer.snapshot();
  EXPECT_EQ(diagnose(trainer, start, 0, 2).where, "");
}

// The diagnosis repeats the bad step, and must do so with the same batch.
TEST(Train, NanBehindABatchNormOverVectorsNamesALayer) {
  const Config config =
      small_config({"model.layers=[{type=\"linear\",out=17},{type=\"batchnorm\"},{type=\"relu\"},{"
                    "type=\"linear\",out=4}]",
                    "train.optimizer={type=\"sgd\",lr=1e30}", "train.clip_norm=0"});
  const std::string message = message_of(ErrorKind::numeric, [&] { train(config, quiet()); });
  EXPECT_THAT(message, ::testing::ContainsRegex("layer [0-9] \\("));
}

// The first layer may look up codes in bytes of any file.
TEST(Train, CodesThatTheFirstLayerDoesNotKnowAreRefused) {
  const TempFolder folder;
  for (const char* first : {"{type=\"embedding\",vocabulary=40,out=3}",
                            "{type=\"onehot_conv1d\",symbols=39,out=3,kernel=3}"}) {
    const Config config = small_config(
        {fmt::format("model.layers=[{},{{type=\"linear\",out=4}}]", first), "train.epochs=1"});
    auto codes = std::make_shared<data::DataSet>();
    for (data::SampleSet* part : {&codes->train, &codes->test}) {
      *part = testing::small_part(20, 7);
      part->inputs = HostTensor(DType::uint8, {20, 36});
      uint8_t next = 0;
      for (uint8_t& code : part->inputs.span<uint8_t>()) code = next = uint8_t((next + 7) % 40);
    }
    TrainOptions options = quiet();
    options.set = codes;
    train(config, options);
    for (data::SampleSet* part : {&codes->train, &codes->test}) {
      part->inputs.span<uint8_t>()[3 * 36 + 5] = 40;
      EXPECT_THAT(
          message_of(ErrorKind::data, [&] { train(config, options); }),
          HasSubstr("sample 3 holds the code 40, but the first layer knows 40 codes (0 to 39)"));
      part->inputs.span<uint8_t>()[3 * 36 + 5] = 39;
    }
  }
}

TEST(Train, WrongOutputCountIsRefused) {
  const TempFolder folder;
  EXPECT_THAT(
      message_of(ErrorKind::usage, [&] { train(small_config({"model.layers.3.out=5"}), quiet()); }),
      HasSubstr("4 classes"));
}

}  // namespace
}  // namespace ridgeline::engine
