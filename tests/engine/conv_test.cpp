// A small convolutional network from config to accuracy, with everything that could go wrong: batch
// normalisation, augmentation, a partial last batch, a resume.
#include <gtest/gtest.h>

#include <cstring>

#include "ridgeline/engine/train/trainer.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

Config conv_config(const std::vector<std::string>& sets = {}) {
  std::vector<std::string> all{"run.tune=false", "run.device=\"cpu\"", "run.threads=2"};
  all.insert(all.end(), sets.begin(), sets.end());
  return parse_config(R"([data]
name = "small"
augment = { shift = 1, flip = false }
[model]
layers = [
  { type = "conv2d", out = 16, kernel = 3, padding = 1, bias = false },
  { type = "batchnorm" },
  { type = "relu" },
  { type = "maxpool2d", kernel = 2 },
  { type = "conv2d", out = 16, kernel = 3 },
  { type = "tanh" },
  { type = "layernorm" },
  { type = "linear", out = 4 },
]
[train]
batch = 16
epochs = 20
seed = 3
optimizer = { type = "adam", lr = 0.003 }
)",
                      "conv.toml", all);
}

TEST(ConvTraining, LearnsInSomeHundredSteps) {
  Machine machine(conv_config().run);
  Trainer trainer(machine, conv_config(), testing::small_set());
  while (trainer.step() < trainer.total_steps()) trainer.advance(32);
  EXPECT_EQ(trainer.step(), 20 * 13);
  EXPECT_GE(trainer.evaluate().accuracy, 0.95);
  // The running statistics were updated once per step.
  for (const nn::Param& param : trainer.model().params()) {
    if (param.kind == nn::ParamKind::counter) {
      EXPECT_EQ(*param.value.view().as<int64_t>(), trainer.step());
    }
  }
}

// N + N steps equal 2N steps, including statistics and augmentation.
TEST(ConvTraining, AResumedRunIsTheSameRun) {
  Machine machine(conv_config().run);
  Trainer whole(machine, conv_config(), testing::small_set());
  while (whole.step() < 40) whole.advance(40 - whole.step());
  Trainer half(machine, conv_config(), testing::small_set());
  while (half.step() < 20) half.advance(20 - half.step());
  Trainer other(machine, conv_config(), testing::small_set());
  other.restore(half.snapshot(), half.step());
  while (other.step() < 40) other.advance(40 - other.step());
  const Snapshot a = whole.snapshot(), b = other.snapshot();
  ASSERT_EQ(a.items.size(), b.items.size());
  for (size_t i = 0; i < a.items.size(); ++i) {
    const Tensor &x = a.items[i].value.view(), &y = b.items[i].value.view();
    EXPECT_EQ(std::memcmp(x.data, y.data, x.bytes()), 0) << a.items[i].name;
  }
}

// Channels that do not fill a block of oneDNN's, in every mix of kernels with and without blocks.
TEST(ConvTraining, ChannelsThatFillNoBlockTrainLikeTheReference) {
  const auto first_losses = [](const std::string& kernels) {
    Config config = conv_config(
        {"model.layers=[{type=\"conv2d\",out=12,kernel=3,padding=1},{type=\"batchnorm\"},"
         "{type=\"relu\"},{type=\"conv2d\",out=12,kernel=3,stride=2},{type=\"batchnorm\"},"
         "{type=\"relu\"},{type=\"linear\",out=4}]"});
    config.run.kernels = {kernels};
    Machine machine(config.run);
    Trainer trainer(machine, config, testing::small_set());
    std::vector<double> losses;
    while (trainer.step() < 10) {
      trainer.advance(10 - trainer.step());
      for (const double loss : trainer.losses()) losses.push_back(loss);
    }
    EXPECT_EQ(trainer.snapshot().first_not_finite(), nullptr) << kernels;
    return losses;
  };
  const std::vector<double> want = first_losses("cpu.*.reference");
  for (const char* kernels :
       {"cpu", "!cpu.activation.simd", "!cpu.activation_grad.simd", "!cpu.*.blocked"}) {
    const std::vector<double> got = first_losses(kernels);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-3 * want[i]) << kernels;
  }
}

TEST(ConvTraining, TheConfigComesBack) {
  const Config config = conv_config({"data.resize=[12, 8]"});
  EXPECT_EQ(config.data.resize, (ImageSize{12, 8}));
  EXPECT_EQ(config.data.shift, 1);
  const std::string text = to_toml(config);
  EXPECT_EQ(to_toml(parse_config(text, "again.toml")), text);
}

}  // namespace
}  // namespace ridgeline::engine
