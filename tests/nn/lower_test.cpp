#include "ridgeline/nn/lower.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ridgeline/nn/activation.h"
#include "ridgeline/nn/dropout.h"
#include "ridgeline/nn/flatten.h"
#include "ridgeline/nn/linear.h"
#include "tests/nn/expect_error.h"

namespace ridgeline::nn {
namespace {

using Names = std::vector<std::string>;

Names op_names(const Lowered& lowered) {
  Names names;
  for (const Op& op : lowered.program.ops) names.push_back(name(op));
  return names;
}

template <typename T>
const T& op(const Lowered& lowered, size_t index) {
  return std::get<T>(lowered.program.ops.at(index));
}

Model small_model(DType weights = DType::fp32) {
  return Model(
      {std::make_shared<LinearLayer>(6), std::make_shared<ActivationLayer>(ActivationKind::relu),
       std::make_shared<LinearLayer>(3)},
      {2, 2}, weights);
}

LowerOptions small_options() {
  LowerOptions options;
  options.batch = 5;
  options.repeats = 4;
  options.set_samples = 30;
  options.order_samples = 20;
  options.classes = 3;
  options.scale = 0.5;
  return options;
}

TEST(Lower, TrainingStepHasTheFixedOrder) {
  const Lowered lowered = lower(small_model(), small_options());
  EXPECT_EQ(
      op_names(lowered),
      (Names{"gather", "gather", "linear", "activation", "linear", "softmax_xent",
             "softmax_xent_grad", "linear_grad_x", "linear_grad_w", "sgd_update", "sgd_update",
             "activation_grad", "linear_grad_w", "sgd_update", "sgd_update", "tick"}));
  EXPECT_EQ(lowered.op_layer,
            (std::vector<int>{-1, -1, 0, 1, 2, -1, -1, 2, 2, 2, 2, 1, 0, 0, 0, -1}));
  EXPECT_EQ(lowered.program.repeats, 4);
}

TEST(Lower, ValuesConnectAndHaveTheirShapes) {
  const Lowered lowered = lower(small_model(), small_options());
  const auto& images = op<Gather>(lowered, 0);
  EXPECT_EQ(images.set.shape, (Shape{30, 2, 2}));
  EXPECT_EQ(images.y.shape, (Shape{5, 4}));
  EXPECT_EQ(images.scale, 0.5);
  EXPECT_EQ(op<Gather>(lowered, 1).set.id, lowered.targets.id);
  const auto& first = op<Linear>(lowered, 2);
  EXPECT_EQ(first.x.id, images.y.id);
  EXPECT_EQ(first.w.id, lowered.params[0].id);
  EXPECT_EQ(first.b.id, lowered.params[1].id);
  EXPECT_EQ(first.y.shape, (Shape{5, 6}));
  // relu's gradient reads its output; the lowest layer makes no dx.
  EXPECT_EQ(op<ActivationGrad>(lowered, 11).saved.id, op<Activation>(lowered, 3).y.id);
  EXPECT_EQ(op<ActivationGrad>(lowered, 11).dy.id, op<LinearGradX>(lowered, 7).dx.id);
  EXPECT_EQ(op<LinearGradW>(lowered, 12).x.id, images.y.id);
  EXPECT_EQ(op<SgdUpdate>(lowered, 9).w.id, lowered.params[2].id);
  EXPECT_EQ(op<SgdUpdate>(lowered, 10).w.id, lowered.params[3].id);
  EXPECT_EQ(op<SgdUpdate>(lowered, 9).dw.id, op<LinearGradW>(lowered, 8).dw.id);
  EXPECT_EQ(lowered.loss.shape, Shape{4});
  EXPECT_EQ(lowered.lr.dtype, DType::fp64);
  EXPECT_FALSE(lowered.step);  // neither dropout nor adam: nothing reads it
  EXPECT_TRUE(lowered.states.empty());
}

TEST(Lower, EveryValueIsWrittenBeforeItIsReadAndIntegersAreBounded) {
  LowerOptions options = small_options();
  options.optimizer.kind = OptimizerKind::adam;
  options.clip_norm = 1;
  const Lowered lowered = lower(small_model(), options);
  std::vector<bool> ready(lowered.program.values.size());
  for (const ValueInfo& info : lowered.program.values) {
    ready[size_t(info.value.id)] = info.role != Role::temp && info.role != Role::output;
  }
  for (const Op& each : lowered.program.ops) {
    for (const Value& value : reads(each)) {
      EXPECT_TRUE(ready[size_t(value.id)])
          << name(each) << ' ' << lowered.program.info(value.id).name;
    }
    for (const Value& value : writes(each)) ready[size_t(value.id)] = true;
  }
  for (size_t i = 0; i < ready.size(); ++i) EXPECT_TRUE(ready[i]) << lowered.program.values[i].name;
  EXPECT_EQ(lowered.program.info(lowered.inputs.id).below, 256);
  EXPECT_EQ(lowered.program.info(lowered.order.id).below, 30);
  EXPECT_EQ(lowered.program.info(lowered.targets.id).below, 3);
}

TEST(Lower, LossIsTheMeanOverTheGlobalBatch) {
  LowerOptions options = small_options();
  options.global_batch = 20;
  EXPECT_EQ(op<SoftmaxXent>(lower(small_model(), options), 5).scale, 1.0 / 20);
  EXPECT_EQ(op<SoftmaxXentGrad>(lower(small_model(), options), 6).scale, 1.0 / 20);
  options.loss = {LossKind::mse};
  const Lowered mse = lower(small_model(), options);
  EXPECT_EQ(op<Mse>(mse, 5).scale, 1.0 / 60);
  EXPECT_EQ(op<MseGrad>(mse, 6).scale, 1.0 / 60);
  EXPECT_EQ(op<Mse>(mse, 5).target.dtype, DType::int32);
  options.global_batch = 0;
  EXPECT_EQ(op<Mse>(lower(small_model(), options), 5).scale, 1.0 / 15);
}

TEST(Lower, ClippingTakesAllGradientsBeforeAnyUpdate) {
  LowerOptions options = small_options();
  options.clip_norm = 2.5;
  const Lowered lowered = lower(small_model(), options);
  const Names names = op_names(lowered);
  EXPECT_EQ(Names(names.begin() + 6, names.end()),
            (Names{"softmax_xent_grad", "linear_grad_x", "linear_grad_w", "activation_grad",
                   "linear_grad_w", "global_norm", "sgd_update", "sgd_update", "sgd_update",
                   "sgd_update", "tick"}));
  const auto& norm = op<GlobalNorm>(lowered, 11);
  EXPECT_EQ(norm.grads.size(), 4u);
  EXPECT_EQ(norm.max_norm, 2.5);
  EXPECT_EQ(op<SgdUpdate>(lowered, 12).grad_scale.id, norm.scale.id);
  EXPECT_EQ(lowered.clipped.dtype, DType::int64);
  EXPECT_TRUE(lowered.grad_norm);
}

TEST(Lower, OptimizerStateHasNames) {
  LowerOptions options = small_options();
  options.optimizer.momentum = 0.9;
  options.optimizer.nesterov = true;
  const Lowered sgd = lower(small_model(), options);
  ASSERT_EQ(sgd.states.size(), 4u);
  EXPECT_EQ(sgd.states[0].name, "2.weight.momentum");
  EXPECT_EQ(sgd.states[3].name, "0.bias.momentum");
  EXPECT_TRUE(op<SgdUpdate>(sgd, 9).nesterov);

  options.optimizer = {};
  options.optimizer.kind = OptimizerKind::adamw;
  options.optimizer.weight_decay = 0.02;
  const Lowered adam = lower(small_model(), options);
  ASSERT_EQ(adam.states.size(), 8u);
  EXPECT_EQ(adam.states[0].name, "2.weight.m");
  EXPECT_EQ(adam.states[1].name, "2.weight.v");
  // All of them come after the last gradient.
  EXPECT_TRUE(op<AdamUpdate>(adam, 11).decoupled);
  EXPECT_EQ(op<AdamUpdate>(adam, 11).weight_decay, 0.02);
  EXPECT_EQ(adam.program.info(adam.states[0].value.id).role, Role::state);
  EXPECT_EQ(adam.step.dtype, DType::int64);
}

Model dropout_model() {
  return Model({std::make_shared<DropoutLayer>(0.1), std::make_shared<LinearLayer>(6),
                std::make_shared<DropoutLayer>(0.5), std::make_shared<LinearLayer>(3)},
               {4});
}

TEST(Lower, DropoutOnlyWhenTrainingAndNoGradientBelowTheFirstWeight) {
  LowerOptions options = small_options();
  options.seed = 9;
  options.sample_offset = 15;
  const Lowered lowered = lower(dropout_model(), options);
  EXPECT_EQ(op_names(lowered),
            (Names{"gather", "gather", "dropout", "linear", "dropout", "linear", "softmax_xent",
                   "softmax_xent_grad", "linear_grad_x", "linear_grad_w", "sgd_update",
                   "sgd_update", "dropout", "linear_grad_w", "sgd_update", "sgd_update", "tick"}));
  const auto& forward = op<Dropout>(lowered, 4);
  EXPECT_EQ(forward.mask.layer, 2u);
  EXPECT_EQ(forward.mask.seed, 9u);
  EXPECT_EQ(forward.mask.sample_offset, 15);
  EXPECT_EQ(forward.attributes(), op<Dropout>(lowered, 12).attributes());
  EXPECT_TRUE(lowered.step);
  options.mode = Mode::evaluate;
  EXPECT_EQ(op_names(lower(dropout_model(), options)),
            (Names{"gather", "gather", "linear", "linear", "softmax_xent", "tick"}));
}

TEST(Lower, FlattenAddsNoOpForwardOrBackward) {
  const Model model({std::make_shared<FlattenLayer>(), std::make_shared<LinearLayer>(3),
                     std::make_shared<FlattenLayer>()},
                    {2, 2});
  const Lowered lowered = lower(model, small_options());
  EXPECT_EQ(op_names(lowered),
            (Names{"gather", "gather", "linear", "softmax_xent", "softmax_xent_grad",
                   "linear_grad_w", "sgd_update", "sgd_update", "tick"}));
}

TEST(Lower, GeluSavesItsInput) {
  const Model model(
      {std::make_shared<LinearLayer>(6), std::make_shared<ActivationLayer>(ActivationKind::gelu),
       std::make_shared<LinearLayer>(3)},
      {4});
  const Lowered lowered = lower(model, small_options());
  EXPECT_EQ(op<ActivationGrad>(lowered, 11).saved.id, op<Activation>(lowered, 3).x.id);
}

TEST(Lower, ValuesAreGatheredAsTheyAreAndComparedWithTheOutputs) {
  LowerOptions options = small_options();
  options.set_inputs = options.set_targets = DType::fp32;
  options.loss = {LossKind::mse};
  const Lowered lowered = lower(small_model(), options);
  const auto &inputs = op<Gather>(lowered, 0), &targets = op<Gather>(lowered, 1);
  EXPECT_EQ(inputs.set.dtype, DType::fp32);
  EXPECT_EQ(inputs.scale, 1);
  EXPECT_EQ(inputs.shift, 0);
  EXPECT_EQ(targets.set.id, lowered.targets.id);
  EXPECT_EQ(targets.set.shape, (Shape{30, 3}));
  EXPECT_EQ(targets.y.shape, (Shape{5, 3}));
  EXPECT_EQ(op<Mse>(lowered, 5).target.id, targets.y.id);
  EXPECT_EQ(op<MseGrad>(lowered, 6).target.id, targets.y.id);
  EXPECT_FALSE(op<Mse>(lowered, 5).correct);
  EXPECT_FALSE(lowered.correct);
  options.loss = {LossKind::cross_entropy};
  test::expect_error(ErrorKind::usage, {"the targets are values"},
                     [&] { lower(small_model(), options); });
  options.loss = {LossKind::mse};
  options.augment.flip = true;
  test::expect_error(ErrorKind::usage, {"images of bytes"}, [&] { lower(small_model(), options); });
}

TEST(Lower, EvaluateAndInfer) {
  LowerOptions options = small_options();
  options.mode = Mode::evaluate;
  const Lowered evaluate = lower(small_model(), options);
  EXPECT_EQ(op_names(evaluate),
            (Names{"gather", "gather", "linear", "activation", "linear", "softmax_xent", "tick"}));
  EXPECT_TRUE(evaluate.correct);
  EXPECT_FALSE(evaluate.lr);
  options.mode = Mode::infer;
  const Lowered infer = lower(small_model(), options);
  EXPECT_EQ(op_names(infer),
            (Names{"gather", "linear", "activation", "linear", "softmax", "tick"}));
  EXPECT_EQ(infer.outputs.shape, (Shape{5, 3}));
  EXPECT_FALSE(infer.targets);
  EXPECT_FALSE(infer.loss);
  EXPECT_FALSE(infer.predictions);
  options.predictions = true;
  const Lowered labels = lower(small_model(), options);
  EXPECT_EQ(op_names(labels),
            (Names{"gather", "linear", "activation", "linear", "softmax", "argmax", "tick"}));
  EXPECT_EQ(labels.predictions.shape, (Shape{5}));
  EXPECT_EQ(labels.predictions.dtype, DType::int32);
  EXPECT_EQ(op<Argmax>(labels, 5).x.id, labels.outputs.id);
}

// mse compares the outputs without a softmax, so inference has none either.
TEST(Lower, InferenceOfAnMseModelGivesItsOutputs) {
  LowerOptions options = small_options();
  options.mode = Mode::infer;
  options.loss = {LossKind::mse};
  options.predictions = true;
  const Lowered infer = lower(small_model(), options);
  EXPECT_EQ(op_names(infer),
            (Names{"gather", "linear", "activation", "linear", "copy", "argmax", "tick"}));
  EXPECT_EQ(op<Copy>(infer, 4).from.id, op<Linear>(infer, 3).y.id);
  EXPECT_EQ(op<Copy>(infer, 4).to.id, infer.outputs.id);
  EXPECT_EQ(infer.outputs.shape, (Shape{5, 3}));
  EXPECT_EQ(op<Argmax>(infer, 5).x.id, infer.outputs.id);
}

TEST(Lower, PrecisionSetsTheTypes) {
  LowerOptions options = small_options();
  options.precision = Precision::fp64;
  const Lowered lowered = lower(small_model(DType::fp64), options);
  EXPECT_EQ(op<Linear>(lowered, 2).y.dtype, DType::fp64);
  EXPECT_EQ(op<LinearGradW>(lowered, 12).dw.dtype, DType::fp64);
  EXPECT_EQ(lowered.params[0].dtype, DType::fp64);
  EXPECT_EQ(lowered.program.precision, Precision::fp64);
}

// tf32 and fp32x3 are modes of multiplication: everything is stored as in fp32.
TEST(Lower, Tf32AndFp32x3AreStoredAsFp32) {
  for (const Precision precision : {Precision::tf32, Precision::fp32x3}) {
    LowerOptions options = small_options();
    options.precision = precision;
    const Lowered lowered = lower(small_model(), options);
    EXPECT_EQ(lowered.program.precision, precision);
    EXPECT_EQ(lowered.params[0].dtype, DType::fp32);
    EXPECT_EQ(op<Linear>(lowered, 2).y.dtype, DType::fp32);
    EXPECT_TRUE(lowered.copies.empty());
  }
}

// fp32 weights with a copy of each factor of a product; biases and gradients are fp32.
TEST(Lower, HalvesKeepMastersAndReadCopies) {
  LowerOptions options = small_options();
  options.precision = Precision::bf16;
  options.optimizer.momentum = 0.9;
  const Lowered lowered = lower(small_model(), options);
  const auto& linear = op<Linear>(lowered, 2);
  const auto& top_grad_x = op<LinearGradX>(lowered, 7);
  const auto& grad = op<LinearGradW>(lowered, 12);
  const auto &w = op<SgdUpdate>(lowered, 13), &b = op<SgdUpdate>(lowered, 14);
  EXPECT_EQ(linear.x.dtype, DType::bf16);
  EXPECT_EQ(linear.w.dtype, DType::bf16);
  EXPECT_EQ(linear.b.dtype, DType::fp32);
  EXPECT_EQ(linear.y.dtype, DType::bf16);
  EXPECT_EQ(grad.dw.dtype, DType::fp32);
  EXPECT_EQ(grad.db.dtype, DType::fp32);
  EXPECT_EQ(w.w.id, lowered.params[0].id);
  EXPECT_EQ(w.w.dtype, DType::fp32);
  EXPECT_EQ(w.m.dtype, DType::fp32);
  EXPECT_EQ(w.copy.id, linear.w.id);
  EXPECT_EQ(b.w.id, linear.b.id);
  EXPECT_FALSE(b.copy);
  ASSERT_EQ(lowered.copies.size(), 2u);
  EXPECT_EQ(lowered.copies[0].param, 0u);
  EXPECT_EQ(lowered.copies[1].value.id, top_grad_x.w.id);
  EXPECT_EQ(lowered.program.info(linear.w.id).role, Role::copy);
  // Programs that do not train read the weights in the type of the products; probabilities are
  // fp32.
  options.mode = Mode::infer;
  const Lowered infer = lower(small_model(), options);
  EXPECT_TRUE(infer.copies.empty());
  EXPECT_EQ(infer.params[0].dtype, DType::bf16);
  EXPECT_EQ(infer.params[1].dtype, DType::fp32);
  EXPECT_EQ(infer.outputs.dtype, DType::fp32);
}

TEST(Lower, PureHalvesHaveNoMasters) {
  LowerOptions options = small_options();
  options.precision = Precision::fp16;
  options.weights = WeightKind::half;
  options.optimizer.kind = OptimizerKind::adam;
  const Lowered lowered = lower(small_model(), options);
  for (const Value& param : lowered.params) EXPECT_EQ(param.dtype, DType::fp16);
  EXPECT_TRUE(lowered.copies.empty());
  EXPECT_EQ(op<LinearGradW>(lowered, 10).dw.dtype, DType::fp16);
  EXPECT_EQ(op<AdamUpdate>(lowered, 13).w.id, lowered.params[0].id);
  for (const auto& state : lowered.states) EXPECT_EQ(state.value.dtype, DType::fp32) << state.name;
}

TEST(Lower, ALossScaleWaitsForAllGradients) {
  LowerOptions options = small_options();
  options.precision = Precision::fp16;
  options.loss_scale = {LossScale::Kind::dynamic, 4096, 7};
  const Lowered lowered = lower(small_model(), options);
  EXPECT_EQ(op_names(lowered),
            (Names{"gather", "gather", "linear", "activation", "linear", "softmax_xent",
                   "softmax_xent_grad", "linear_grad_x", "linear_grad_w", "activation_grad",
                   "linear_grad_w", "global_norm", "sgd_update", "sgd_update", "sgd_update",
                   "sgd_update", "tick"}));
  const auto& norm = op<GlobalNorm>(lowered, 11);
  EXPECT_EQ(op<SoftmaxXentGrad>(lowered, 6).loss_scale.id, lowered.loss_scale.id);
  EXPECT_EQ(norm.loss_scale.id, lowered.loss_scale.id);
  EXPECT_EQ(norm.skipped.id, lowered.skipped.id);
  EXPECT_EQ(norm.growth, 7);
  EXPECT_TRUE(std::isinf(norm.max_norm));
  EXPECT_EQ(norm.grads.size(), 4u);
  for (size_t i = 12; i < 16; ++i)
    EXPECT_EQ(op<SgdUpdate>(lowered, i).grad_scale.id, norm.scale.id);
  ASSERT_EQ(lowered.states.size(), 3u);
  EXPECT_EQ(lowered.states[0].name, "loss_scale");
  EXPECT_EQ(lowered.states[0].start, 4096);
  options.loss_scale.kind = LossScale::Kind::fixed;
  EXPECT_EQ(op<GlobalNorm>(lower(small_model(), options), 11).growth, 0);
}

TEST(Lower, RefusesWhatCannotRun) {
  const auto lowering = [](auto change) {
    return [change] {
      LowerOptions options = small_options();
      change(options);
      lower(small_model(), options);
    };
  };
  using test::expect_error;
  expect_error(ErrorKind::usage, {"half weights", "bf16 and fp16", "fp32"},
               lowering([](LowerOptions& o) { o.weights = WeightKind::half; }));
  expect_error(ErrorKind::usage, {"loss scale", "bf16 and fp16", "fp32"},
               lowering([](LowerOptions& o) { o.loss_scale.kind = LossScale::Kind::dynamic; }));
  expect_error(ErrorKind::usage, {"0.weight", "fp32", "fp64"},
               lowering([](LowerOptions& o) { o.precision = Precision::fp64; }));
  expect_error(ErrorKind::usage, {"batch", "at least 1", "0"},
               lowering([](LowerOptions& o) { o.batch = 0; }));
  expect_error(ErrorKind::usage, {"output [3]", "4 classes"},
               lowering([](LowerOptions& o) { o.classes = 4; }));
  expect_error(ErrorKind::usage, {"batch of 5", "4 samples"},
               lowering([](LowerOptions& o) { o.order_samples = 4; }));
  expect_error(ErrorKind::usage, {"32 bits"},
               lowering([](LowerOptions& o) { o.set_samples = int64_t{1} << 32; }));
  expect_error(ErrorKind::usage, {"no weights to train"},
               [] { lower(Model({std::make_shared<FlattenLayer>()}, {3}), small_options()); });
}

}  // namespace
}  // namespace ridgeline::nn
