#include "ridgeline/nn/fold_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ridgeline/nn/graph_config.h"
#include "ridgeline/nn/lower.h"
#include "tests/support/cases.h"
#include "tests/support/oracle.h"

namespace ridgeline::nn {
namespace {

Model make(const std::string& layers) {
  ConfigTable table = ConfigTable::parse("layers = [" + layers + "]", "net.toml");
  Model model(read_graph(table), {2, 5, 6}, DType::fp64);
  model.initialise(7);
  for (Param& param : model.params()) {  // as training would leave them
    const bool variance = param.name.ends_with("running_var");
    if (param.kind == ParamKind::counter) continue;
    auto values = param.value.span<double>();
    for (size_t i = 0; i < values.size(); ++i) {
      if (param.kind == ParamKind::statistic || values[i] == 0 || values[i] == 1) {
        values[i] = (variance ? 0.5 : -0.3) + 0.17 * double(i % 7);
      }
    }
  }
  return model;
}

std::vector<double> outputs(const Model& model) {
  LowerOptions options;
  options.mode = Mode::infer;
  options.precision = Precision::fp64;
  options.batch = options.set_samples = options.order_samples = 3;
  options.scale = 1.0 / 255;
  options.loss = {LossKind::mse};
  const Lowered lowered = lower(model, options);
  test::Arrays arrays(lowered.program);
  for (const Value& value : {lowered.tick, lowered.first}) {
    std::memset(arrays[value].data, 0, arrays[value].bytes());
  }
  const Tensor& inputs = arrays[lowered.inputs];
  for (int64_t i = 0; i < inputs.numel(); ++i) inputs.as<uint8_t>()[i] = uint8_t(i * 37 % 256);
  for (int i = 0; i < 3; ++i) arrays[lowered.order].as<int32_t>()[i] = i;
  for (size_t i = 0; i < lowered.params.size(); ++i) {
    const Tensor& from = model.params()[i].value.view();
    std::memcpy(arrays[lowered.params[i]].data, from.data, from.bytes());
  }
  test::Reference().run(lowered.program, 0, lowered.program.ops.size(), arrays);
  const auto given = arrays[lowered.outputs].span<double>();
  return {given.begin(), given.end()};
}

void expect_folded(const std::string& layers, size_t left, const std::vector<int>& kept) {
  const Model model = make(layers);
  const auto folded = fold_norms(model);
  ASSERT_TRUE(folded) << layers;
  EXPECT_EQ(folded->model.layers().size(), left) << layers;
  EXPECT_EQ(folded->layers, kept) << layers;
  const std::vector<double> want = outputs(model), got = outputs(folded->model);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-13 * (1 + std::abs(want[i]))) << layers << " output " << i;
  }
}

const std::string kConv = "{ type = \"conv2d\", out = 3, kernel = 3, padding = 1, bias = false }, ";
const std::string kNorm = "{ type = \"batchnorm\" }, ";
const std::string kEnd = "{ type = \"linear\", out = 4 }";

TEST(FoldNorms, GivesTheSameOutputs) {
  expect_folded(kConv + kNorm + "{ type = \"relu\" }, " + kEnd, 3, {0, 2, 3});
  expect_folded(
      "{ type = \"conv2d\", out = 4, kernel = 2, groups = 2 }, { type = \"batchnorm\", "
      "affine = false, eps = 0.1 }, " +
          kEnd + ", " + kNorm + "{ type = \"tanh\" }",
      3, {0, 2, 4});
  expect_folded(
      "{ type = \"reshape\", shape = [2, 30] }, { type = \"conv1d\", out = 3, kernel = 4 }, " +
          kNorm + kEnd,
      3, {0, 1, 3});
  // In a residual block, where the sum reads the output of the norm.
  expect_folded(kConv + "{ type = \"residual\", layers = [" + kConv + kNorm +
                    "{ type = \"relu\" }, " + kConv + "{ type = \"batchnorm\" }] }, " + kEnd,
                6, {0, 1, 3, 4, 6, 7});
}

TEST(FoldNorms, LeavesWhatItMust) {
  EXPECT_FALSE(fold_norms(make(kEnd)));
  EXPECT_FALSE(fold_norms(make(kConv + "{ type = \"relu\" }, " + kNorm + kEnd)));
  // Other layers read the convolution too, or use its weights.
  EXPECT_FALSE(
      fold_norms(make("{ type = \"conv2d\", out = 2, kernel = 1, name = \"c\" }, "
                      "{ type = \"batchnorm\", name = \"n\" }, { type = \"add\", inputs = "
                      "[\"n\", \"c\"] }, " +
                      kEnd)));
  EXPECT_FALSE(
      fold_norms(make("{ type = \"conv2d\", out = 2, kernel = 1, name = \"c\" }, " + kNorm +
                      "{ type = \"conv2d\", out = 2, kernel = 1, weights_of = \"c\" }, " + kEnd)));
  // A norm over timesteps is not one over channels.
  EXPECT_FALSE(
      fold_norms(make("{ type = \"reshape\", shape = [10, 6] }, { type = \"linear\", out = "
                      "3, per_step = true }, " +
                      kNorm + kEnd)));
}

}  // namespace
}  // namespace ridgeline::nn
