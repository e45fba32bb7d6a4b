#include "ridgeline/nn/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ridgeline/nn/activation.h"
#include "ridgeline/nn/group_norm.h"
#include "ridgeline/nn/layers.h"
#include "ridgeline/nn/linear.h"
#include "ridgeline/nn/loss_ops.h"
#include "ridgeline/nn/lower.h"
#include "tests/nn/expect_error.h"

namespace ridgeline::nn {
namespace {

Loss read(const std::string& text) {
  ConfigTable table = ConfigTable::parse("loss = " + text, "net.toml");
  return read_loss(table, "loss");
}

LayerPtr read_one(const std::string& text) {
  ConfigTable table = ConfigTable::parse("layers = [" + text + "]", "net.toml");
  return read_layer(table.tables("layers").front());
}

TEST(Loss, ReadsWhatItWrites) {
  const char* const kTexts[] = {
      "\"cross-entropy\"",
      "\"mse\"",
      "\"mae\"",
      "{ type = \"huber\", delta = 0.5 }",
      "\"binary-cross-entropy\"",
      "{ type = \"binary-cross-entropy\", pos_weight = [2.0] }",
      "{ type = \"binary-cross-entropy\", pos_weight = [0.5, 3.0] }",
      "{ type = \"quantile\", quantiles = [0.1, 0.5, 0.9] }",
      "{ type = \"cross-entropy\", weights = [1.0, 0.0, 2.5], smoothing = 0.1 }",
      "{ type = \"cross-entropy\", weights = \"balanced\" }",
      "{ type = \"cross-entropy\", smoothing = 0.2 }",
  };
  for (const char* text : kTexts) {
    const Loss loss = read(text);
    EXPECT_EQ(to_toml(loss), text);
    EXPECT_EQ(read(to_toml(loss)), loss) << text;
  }
  EXPECT_EQ(read("\"huber\"").delta, 1);
  EXPECT_EQ(read("\"quantile\"").quantiles, (std::vector<double>{0.5}));
  EXPECT_EQ(read("{ type = \"binary-cross-entropy\", pos_weight = 2 }").pos_weight,
            (std::vector<double>{2}));
}

TEST(Loss, RefusesWhatIsNone) {
  const auto refused = [](const std::string& text, const char* part) {
    test::expect_error(ErrorKind::usage, {part}, [&] { read(text); });
  };
  refused("\"mean\"", "unknown value");
  refused("{ type = \"huber\", delta = 0 }", "delta");
  refused("{ type = \"mse\", delta = 1 }", "delta");
  refused("{ type = \"cross-entropy\", weights = \"equal\" }", "balanced");
  refused("{ type = \"cross-entropy\", weights = [1, -1] }", "weights");
  refused("{ type = \"cross-entropy\", weights = [1, \"a\"] }", "must hold numbers");
  refused("{ type = \"cross-entropy\", weights = [nan] }", "weights");
  refused("{ type = \"cross-entropy\", smoothing = 1 }", "smoothing");
  refused("{ type = \"quantile\", quantiles = [] }", "quantiles");
  refused("{ type = \"quantile\", quantiles = [0.5, 1] }", "quantiles");
  refused("{ smoothing = 0.1 }", "type");
}

TEST(Loss, BalancedWeightsMakeClassesCountAlike) {
  EXPECT_EQ(balanced_weights({1, 3, 4}), (std::vector<double>{8.0 / 3, 8.0 / 9, 8.0 / 12}));
  EXPECT_EQ(balanced_weights({2, 0}), (std::vector<double>{0.5, 1}));
}

LowerOptions options_of(const Loss& loss) {
  LowerOptions options;
  options.batch = 4;
  options.set_samples = options.order_samples = 8;
  options.loss = loss;
  return options;
}

Lowered lowered(const Loss& loss, Mode mode = Mode::train, int64_t out = 6) {
  LowerOptions options = options_of(loss);
  options.mode = mode;
  return lower(Model({std::make_shared<LinearLayer>(out)}, {5}), options);
}

template <typename T>
const T* find(const Lowered& lowered) {
  for (const Op& op : lowered.program.ops) {
    if (const T* found = std::get_if<T>(&op)) return found;
  }
  return nullptr;
}

TEST(Loss, EveryKindLowersToItsOps) {
  Loss loss{LossKind::huber};
  loss.delta = 0.25;
  const Lowered huber = lowered(loss);
  ASSERT_NE(find<ElementwiseLoss>(huber), nullptr);
  EXPECT_EQ(find<ElementwiseLoss>(huber)->fn, LossFn::huber);
  EXPECT_EQ(find<ElementwiseLoss>(huber)->delta, 0.25);
  EXPECT_EQ(find<ElementwiseLoss>(huber)->scale, 1.0 / 24);
  EXPECT_EQ(find<ElementwiseLossGrad>(huber)->delta, 0.25);
  EXPECT_TRUE(huber.constants.empty());

  loss = {LossKind::quantile};
  loss.quantiles = {0.1, 0.9};
  const Lowered quantile = lowered(loss);
  ASSERT_EQ(quantile.constants.size(), 1u);
  EXPECT_EQ(quantile.constants[0].numbers, loss.quantiles);
  EXPECT_EQ(find<ElementwiseLoss>(quantile)->weights.id, quantile.constants[0].value.id);
  EXPECT_EQ(find<ElementwiseLossGrad>(quantile)->weights.id, quantile.constants[0].value.id);

  loss = {LossKind::cross_entropy};
  loss.weights = {1, 2, 3, 4, 5, 6};
  loss.smoothing = 0.1;
  const Lowered weighted = lowered(loss);
  EXPECT_EQ(find<SoftmaxXent>(weighted)->scale, 1.0 / 4);
  EXPECT_EQ(find<SoftmaxXent>(weighted)->smoothing, 0.1);
  EXPECT_EQ(find<SoftmaxXentGrad>(weighted)->weights.id, weighted.constants[0].value.id);
}

TEST(Loss, WeightsOfSamplesAreGatheredAndReadByTheLoss) {
  for (const Mode mode : {Mode::train, Mode::evaluate}) {
    for (const LossKind kind : {LossKind::cross_entropy, LossKind::mse, LossKind::huber}) {
      const Loss loss{kind};
      LowerOptions options = options_of(loss);
      options.mode = mode;
      options.sample_weights = true;
      const Lowered weighted = lower(Model({std::make_shared<LinearLayer>(6)}, {5}), options);
      ASSERT_TRUE(weighted.sample_weights);
      const auto* elementwise = find<ElementwiseLoss>(weighted);
      const auto* xent = find<SoftmaxXent>(weighted);
      ASSERT_TRUE((elementwise != nullptr) != (xent != nullptr));
      EXPECT_TRUE(xent != nullptr ? xent->sample_weights : elementwise->sample_weights);
      if (kind == LossKind::mse) {  // twice a Huber loss without a linear part
        EXPECT_TRUE(std::isinf(elementwise->delta));
        EXPECT_EQ(elementwise->scale, 2.0 / 24);
      }
    }
  }
}

TEST(Loss, EvaluationWeightsAndSmoothsNothing) {
  Loss loss;
  loss.weights = {1, 2, 3, 4, 5, 6};
  loss.smoothing = 0.1;
  const Lowered evaluated = lowered(loss, Mode::evaluate);
  EXPECT_TRUE(find<SoftmaxXent>(evaluated)->one_hot());
  EXPECT_TRUE(evaluated.constants.empty());
}

TEST(Loss, QuantilesShareTheValuesOfATarget) {
  Loss loss{LossKind::quantile};
  loss.quantiles = {0.1, 0.5, 0.9};
  LowerOptions options = options_of(loss);
  options.set_inputs = options.set_targets = DType::fp32;
  const Lowered lowered = lower(Model({std::make_shared<LinearLayer>(6)}, {5}), options);
  EXPECT_EQ(lowered.targets.shape, (Shape{8, 2}));
  EXPECT_EQ(find<ElementwiseLoss>(lowered)->target.shape, (Shape{4, 2}));
}

TEST(Loss, InferenceGivesWhatTheLossReads) {
  EXPECT_NE(find<Softmax>(lowered({}, Mode::infer)), nullptr);
  EXPECT_NE(find<Copy>(lowered({LossKind::huber}, Mode::infer)), nullptr);
  const Lowered labels = lowered({LossKind::binary_cross_entropy}, Mode::infer);
  ASSERT_NE(find<Activation>(labels), nullptr);
  EXPECT_EQ(find<Activation>(labels)->kind, ActivationKind::sigmoid);
  EXPECT_EQ(find<Activation>(labels)->y.id, labels.outputs.id);
}

TEST(Loss, ParametersMustFitTheOutputs) {
  Loss loss;
  loss.weights = {1, 2};
  test::expect_error(ErrorKind::usage, {"weights", "2 numbers", "6 classes"},
                     [&] { lowered(loss); });
  loss = {LossKind::binary_cross_entropy};
  loss.pos_weight = {1, 2};
  test::expect_error(ErrorKind::usage, {"pos_weight", "6 outputs"}, [&] { lowered(loss); });
  loss = {LossKind::quantile};
  loss.quantiles = {0.1, 0.5, 0.6, 0.7};
  test::expect_error(ErrorKind::usage, {"4 quantiles", "multiple of 4"}, [&] { lowered(loss); });
}

TEST(Layers, ActivationsWithParametersAndNormsReadWhatTheyWrite) {
  for (const char* text :
       {"{ type = \"silu\" }", "{ type = \"softplus\" }", "{ type = \"hardswish\" }",
        "{ type = \"leaky_relu\", slope = 0.2 }", "{ type = \"elu\", alpha = 0.5 }",
        "{ type = \"groupnorm\", groups = 4, eps = 0.001, affine = false }",
        "{ type = \"rmsnorm\", dims = 1, eps = 0.001, affine = true }"}) {
    EXPECT_EQ(read_one(text)->to_toml(), text);
  }
  EXPECT_EQ(read_one("{ type = \"leaky_relu\" }")->to_toml(),
            "{ type = \"leaky_relu\", slope = 0.01 }");
  test::expect_error(ErrorKind::usage, {"slope"},
                     [] { read_one("{ type = \"leaky_relu\", slope = -1 }"); });
  test::expect_error(ErrorKind::usage, {"slope"},
                     [] { read_one("{ type = \"relu\", slope = 1 }"); });
}

TEST(Layers, GroupNormNeedsWholeGroups) {
  const GroupNormLayer layer(4, 1e-5, true);
  EXPECT_EQ(layer.output({8, 3, 3}), (Shape{8, 3, 3}));
  EXPECT_EQ(layer.params({8, 3, 3}).front().shape, (Shape{8}));
  test::expect_error(ErrorKind::usage, {"6", "4 groups"}, [&] { layer.output({6, 3}); });
  const RmsNormLayer rms(1, 1e-5, true);
  EXPECT_EQ(rms.params({8, 3}).size(), 1u);
  EXPECT_EQ(rms.params({8, 3}).front().shape, (Shape{3}));
}

}  // namespace
}  // namespace ridgeline::nn
