#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ridgeline/nn/activation.h"
#include "ridgeline/nn/dropout.h"
#include "ridgeline/nn/graph_config.h"
#include "ridgeline/nn/linear.h"
#include "ridgeline/nn/lower.h"
#include "tests/support/cases.h"
#include "tests/support/oracle.h"

namespace ridgeline::nn {
namespace {

using test::Arrays;

// A whole network lowered in fp64 and run by the reference kernels, on six samples of a set of
// eight.
class Net {
 public:
  Net(Graph layers, Loss loss, const Optimizer& optimizer = {}, double clip_norm = 0)
      : model_(std::move(layers), {2, 3}, DType::fp64) {
    model_.initialise(3);
    options_.precision = Precision::fp64;
    options_.batch = 6;
    options_.set_samples = 8;
    options_.order_samples = 6;
    options_.classes = 3;
    options_.scale = 1.0 / 255;
    options_.loss = loss;
    options_.optimizer = optimizer;
    options_.clip_norm = clip_norm;
    options_.seed = 4;
    if (!model_.graph().heads().empty()) options_.set_targets = DType::fp32;
    lowered_ = lower(model_, options_);
  }

  const Lowered& lowered() const { return lowered_; }
  Model& model() { return model_; }

  // Every value after `steps` passes from the model's weights, with a rate of `lr`.
  Arrays run(double lr, int64_t steps = 1) const {
    const Program& program = lowered_.program;
    Arrays arrays(program);
    const auto zero = [&](const Value& value) {
      if (value) std::memset(arrays[value].data, 0, arrays[value].bytes());
    };
    for (const Value& value : {lowered_.tick, lowered_.first, lowered_.step, lowered_.clipped})
      zero(value);
    for (const Lowered::State& state : lowered_.states) zero(state.value);
    for (const auto& [value, numbers] : lowered_.constants) {
      std::copy(numbers.begin(), numbers.end(), arrays[value].as<double>());
    }
    for (int i = 0; i < 8 * 6; ++i)
      arrays[lowered_.inputs].as<uint8_t>()[i] = uint8_t(i * 37 % 256);
    const Tensor& targets = arrays[lowered_.targets];
    for (int64_t i = 0; i < targets.numel(); ++i) {
      if (targets.dtype == DType::fp32) {
        targets.as<float>()[i] = float(i * 13 % 17) / 17;
      } else {
        targets.as<int32_t>()[i] = int32_t(i % 3);
      }
    }
    for (int i = 0; i < 6; ++i) arrays[lowered_.order].as<int32_t>()[i] = 7 - i;
    arrays[lowered_.lr].as<double>()[0] = lr;
    for (size_t i = 0; i < lowered_.params.size(); ++i) {
      const auto from = model_.params()[i].value.span<double>();
      std::copy(from.begin(), from.end(), arrays[lowered_.params[i]].as<double>());
    }
    test::Reference reference;
    for (int64_t step = 0; step < steps; ++step) {
      zero(lowered_.tick);  // each pass is a launch of one step
      if (lowered_.step) arrays[lowered_.step].as<int64_t>()[0] = step;
      reference.run(program, 0, program.ops.size(), arrays);
    }
    return arrays;
  }

  double loss() const { return run(0)[lowered_.loss].as<double>()[0]; }

  // The gradient of the parameter as the program's op wrote it; for a parameter that several layers
  // use, the sum of theirs.
  Value grad(size_t param) const {
    Value found;
    for (const ValueInfo& info : lowered_.program.values) {
      const std::string name = model_.params()[param].name + ".grad";
      if (info.name == name && !found) found = info.value;
      if (info.name == name + ".sum") return info.value;
    }
    return found;
  }

  // The worst |analytic - central difference| over all weights, relative to the largest gradient.
  double worst_error() {
    const Arrays arrays = run(0);
    double worst = 0, largest = 0;
    for (size_t p = 0; p < model_.params().size(); ++p) {
      const double* analytic = arrays[grad(p)].as<double>();
      const auto weights = model_.params()[p].value.span<double>();
      for (size_t i = 0; i < weights.size(); ++i) {
        // The error of a central difference is about h^2 f''' / 6 + u f / h: least near u^(1/3).
        constexpr double kStep = 1e-5;
        const double kept = weights[i];
        weights[i] = kept + kStep;
        const double above = loss();
        weights[i] = kept - kStep;
        const double below = loss();
        weights[i] = kept;
        worst = std::max(worst, std::abs(analytic[i] - (above - below) / (2 * kStep)));
        largest = std::max(largest, std::abs(analytic[i]));
      }
    }
    return worst / largest;
  }

 private:
  Model model_;
  LowerOptions options_;
  Lowered lowered_;
};

// h^2 and u/h are both near 1e-10 here; third derivatives of these nets are of order one.
constexpr double kBound = 1e-8;

std::vector<LayerPtr> mlp(ActivationKind kind) {
  return {std::make_shared<LinearLayer>(4),
          std::make_shared<ActivationLayer>(kind),
          std::make_shared<DropoutLayer>(0.3),
          std::make_shared<LinearLayer>(5, false),
          std::make_shared<ActivationLayer>(ActivationKind::tanh),
          std::make_shared<LinearLayer>(3)};
}

TEST(Gradient, OfWholeNetsAgreesWithDifferences) {
  for (const ActivationKind kind : test::kActivations) {
    for (const LossKind loss : {LossKind::cross_entropy, LossKind::mse}) {
      EXPECT_LT(Net(mlp(kind), {loss}).worst_error(), kBound) << name(kind) << ' ' << name(loss);
    }
  }
}

TEST(Gradient, OfNetsThatBranchAgreesWithDifferences) {
  const std::string last = "{ type = \"linear\", out = 3 }",
                    a = "{ type = \"linear\", out = 6, name = ";
  for (
      const std::string& layers :
      {"{ type = \"residual\", layers = [{ type = \"linear\", out = 4 }, { type = \"tanh\" }], "
       "shortcut = [{ type = \"linear\", out = 4 }] }, { repeat = 2, type = \"residual\", layers = "
       "[{ type = \"linear\", out = 4 }, { type = \"sigmoid\" }] }, " +
           last,
       a +
           "\"a\" }, { type = \"tanh\", name = \"b\" }, { type = \"multiply\", inputs = "
           "[\"a\", \"b\", \"a\"], name = \"c\" }, { type = \"mean\", inputs = [\"a\", \"c\", "
           "\"b\"] }, " +
           last,
       // Repeated over channels and over everything.
       a +
           "\"a\" }, { type = \"reshape\", shape = [3, 2], name = \"r\" }, { type = \"linear\", "
           "out "
           "= 3, inputs = [\"a\"], name = \"g\" }, { type = \"linear\", out = 1, inputs = [\"a\"], "
           "name = \"s\" }, { type = \"multiply\", inputs = [\"g\", \"r\"], name = \"m\" }, "
           "{ type = \"add\", inputs = [\"s\", \"m\", \"g\"] }, { type = \"tanh\" }, " +
           last,
       "{ type = \"conv2d\", out = 2, kernel = 1, name = \"a\" }, { type = \"upsample\", factor = "
       "[1, 2], mode = \"bilinear\" }, { type = \"slice\", axis = 2, start = 1, end = -2, name = "
       "\"u\" }, { type = \"concat\", inputs = [\"u\", \"a\", \"u\"] }, { type = \"pad\", padding "
       "= [1, 0, 0, 2], value = 0.5 }, { type = \"transpose\", name = \"p\", axes = [2, 0, 1] }, { "
       "type = "
       "\"concat\", axis = -1, inputs = [\"p\", \"p\"] }, " +
           last}) {
    ConfigTable table = ConfigTable::parse("layers = [" + layers + "]", "net.toml");
    EXPECT_LT(Net(read_graph(table), {LossKind::mse}).worst_error(), kBound) << layers;
  }
}

Graph parse(const std::string& text) {
  ConfigTable table = ConfigTable::parse(text, "net.toml");
  return read_graph(table);
}

TEST(Gradient, OfWeightsThatSeveralLayersUseAgreesWithDifferences) {
  const std::string chain =
      "{ type = \"linear\", out = 5, name = \"first\" }, { type = \"tanh\" }, "
      "{ type = \"linear\", out = 5, name = \"a\" }, { type = \"sigmoid\" }, "
      "{ type = \"linear\", out = 5, weights_of = \"a\", name = \"b\" }, { type = \"tanh\" }, "
      "{ type = \"linear\", out = 5, weights_of = \"b\" }, { type = \"linear\", out = 3 }";
  Net net(parse("layers = [" + chain + "]"), {LossKind::mse});
  EXPECT_EQ(net.model().params().size(), 6u);  // of three layers
  EXPECT_LT(net.worst_error(), kBound);
  const std::string two_ways =
      "{ type = \"slice\", axis = 1, end = 2, name = \"left\" }, { type = \"slice\", axis = 1, "
      "start = 1, inputs = [\"input\"], name = \"right\" }, { type = \"linear\", out = 4, inputs = "
      "[\"left\"], name = \"a\" }, { type = \"linear\", out = 4, inputs = [\"right\"], weights_of "
      "= "
      "\"a\", name = \"b\" }, { type = \"multiply\", inputs = [\"a\", \"b\"] }, { type = "
      "\"linear\", out = 3 }";
  EXPECT_LT(Net(parse("layers = [" + two_ways + "]"), {LossKind::mse}).worst_error(), kBound);
}

TEST(Gradient, OfSeveralHeadsAgreesWithDifferences) {
  const std::string layers =
      "layers = [{ type = \"linear\", out = 5 }, { type = \"tanh\", name = \"h\" }, "
      "{ type = \"linear\", out = 3, name = \"logits\" }, { type = \"linear\", out = 2, "
      "inputs = [\"h\"], name = \"value\" }]\n";
  const auto heads = [&](const std::string& second) {
    return parse(layers + "heads = [{ layer = \"logits\", weight = 0.7 }, { layer = \"value\", " +
                 second + " }]");
  };
  for (const char* loss : {"loss = \"mse\"", "loss = \"huber\", weight = 3", "loss = \"mae\"",
                           "loss = \"binary-cross-entropy\"", "loss = \"cross-entropy\""}) {
    EXPECT_LT(Net(heads(loss), {}).worst_error(), kBound) << loss;
  }
  // The loss is the sum of the heads' own, each times its weight.
  const auto head_loss = [&](const Net& net, size_t head) {
    return net.run(0)[net.lowered().head_losses[head]].as<double>()[0];
  };
  const Net once(heads("loss = \"mse\""), {}), thrice(heads("loss = \"mse\", weight = 3"), {});
  EXPECT_DOUBLE_EQ(once.loss(), head_loss(once, 0) + head_loss(once, 1));
  EXPECT_DOUBLE_EQ(head_loss(thrice, 0), head_loss(once, 0));
  EXPECT_NEAR(head_loss(thrice, 1), 3 * head_loss(once, 1), 1e-14);
}

// An initial state that is learnt, and layers that run in reverse.
TEST(Gradient, OfRecurrentNetsAgreesWithDifferences) {
  for (const std::string cell : {"rnn", "gru", "lstm"}) {
    for (const std::string keys :
         {"reverse = true, initial_state = true", "initial_state = true, layers = 2",
          "bidirectional = true, initial_state = true, bias = false", "reverse = true"}) {
      const std::string layers = "layers = [{ type = \"" + cell + "\", hidden = 4, " + keys +
                                 " }, { type = \"linear\", out = 3 }]";
      Net net(parse(layers), {LossKind::mse});
      for (Param& param : net.model().params()) {
        const auto values = param.value.span<double>();
        if (param.name.find("0_l") == std::string::npos) continue;
        for (size_t i = 0; i < values.size(); ++i) values[i] = 0.3 - 0.1 * double(i % 5);
      }
      EXPECT_LT(net.worst_error(), kBound) << layers;
    }
  }
}

// Of six consecutive numbers, the middle ones; and the last together with the first two.
TEST(Gradient, OfFieldsAgreesWithDifferences) {
  const std::string fields =
      "layers = [{ type = \"linear\", out = 6, name = \"all\" }, { type = \"fields\", inputs = "
      "[\"all\"], names = [\"b\"], parts = [{ at = 1, width = 4 }], shape = [2, 2], name = \"b\" "
      "}, "
      "{ type = \"flatten\", name = \"bf\" }, { type = \"fields\", inputs = [\"all\"], names = "
      "[\"c\", \"a\"], parts = [{ at = 5, width = 1 }, { at = 0, width = 2 }], name = \"ca\" }, "
      "{ type = \"concat\", inputs = [\"bf\", \"ca\"] }, { type = \"tanh\" }, { type = "
      "\"linear\", out = 3 }]";
  EXPECT_LT(Net(parse(fields), {LossKind::mse}).worst_error(), kBound);
}

TEST(Gradient, OfEveryLossAgreesWithDifferences) {
  std::vector<Loss> losses;
  for (const LossKind kind : {LossKind::mae, LossKind::huber, LossKind::binary_cross_entropy}) {
    losses.push_back({kind});
  }
  losses[1].delta = 0.3;  // the errors of this net lie on both sides
  Loss loss{LossKind::cross_entropy};
  loss.smoothing = 0.1;
  losses.push_back(loss);
  loss.weights = {0.5, 2, 1};
  losses.push_back(loss);
  loss.smoothing = 0;
  losses.push_back(loss);
  loss = {LossKind::binary_cross_entropy};
  loss.pos_weight = {2.5};
  losses.push_back(loss);
  loss.pos_weight = {0.5, 3, 1};
  losses.push_back(loss);
  loss = {LossKind::quantile};
  loss.quantiles = {0.1, 0.5, 0.8};
  losses.push_back(loss);
  for (const Loss& each : losses) {
    EXPECT_LT(Net(mlp(ActivationKind::tanh), each).worst_error(), kBound) << to_toml(each);
  }
}

// The control: an activation with the gradient of another one must fail.
class WrongGradient final : public Layer {
 public:
  std::string type() const override { return "wrong"; }
  Shape output(const Shape& input) const override { return input; }
  Value forward(Builder& builder, LayerValues& values) const override {
    return ActivationLayer(ActivationKind::tanh).forward(builder, values);
  }
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override {
    return ActivationLayer(ActivationKind::sigmoid).backward(builder, values, dy, needs_dx);
  }
  std::string to_toml() const override { return {}; }
};

TEST(Gradient, AWrongGradientFails) {
  const std::vector<LayerPtr> layers{std::make_shared<LinearLayer>(4),
                                     std::make_shared<WrongGradient>(),
                                     std::make_shared<LinearLayer>(3)};
  EXPECT_GT(Net(layers, {}).worst_error(), 1000 * kBound);
}

// Compares the optimizers with their equations written out by hand, over three steps of a network
// whose gradient is computed by the program at each step.
void expect_updates(const Optimizer& o, double clip_norm = 0) {
  constexpr double kLr = 0.1;
  Net net({std::make_shared<LinearLayer>(3)}, {}, o, clip_norm);
  Net by_hand({std::make_shared<LinearLayer>(3)}, {});
  const size_t count = net.model().params().size();
  std::vector<std::vector<double>> m(count), v(count);
  for (int step = 1; step <= 3; ++step) {
    const Arrays grads = by_hand.run(0);
    double squares = 0;
    for (size_t p = 0; p < count; ++p) {
      for (const double g : grads[by_hand.grad(p)].span<double>()) squares += g * g;
    }
    const double scale = clip_norm > 0 ? std::min(1.0, clip_norm / std::sqrt(squares)) : 1.0;
    for (size_t p = 0; p < count; ++p) {
      const auto w = by_hand.model().params()[p].value.span<double>();
      m[p].resize(w.size());
      v[p].resize(w.size());
      for (size_t i = 0; i < w.size(); ++i) {
        double g = scale * grads[by_hand.grad(p)].as<double>()[i];
        if (o.kind != OptimizerKind::adamw) g += o.weight_decay * w[i];
        if (o.kind == OptimizerKind::sgd) {
          m[p][i] = o.momentum * m[p][i] + g;
          w[i] -= kLr * (o.nesterov ? g + o.momentum * m[p][i] : m[p][i]);
          continue;
        }
        if (o.kind == OptimizerKind::adamw) w[i] -= kLr * o.weight_decay * w[i];
        m[p][i] = o.beta1 * m[p][i] + (1 - o.beta1) * g;
        v[p][i] = o.beta2 * v[p][i] + (1 - o.beta2) * g * g;
        const double mean = m[p][i] / (1 - std::pow(o.beta1, step));
        const double square = v[p][i] / (1 - std::pow(o.beta2, step));
        w[i] -= kLr * mean / (std::sqrt(square) + o.epsilon);
      }
    }
    const Arrays got = net.run(kLr, step);
    for (size_t p = 0; p < count; ++p) {
      const auto want = by_hand.model().params()[p].value.span<double>();
      for (size_t i = 0; i < want.size(); ++i) {
        // Adam divides by sqrt(v): rounding of a tiny gradient is magnified, 1e-10 allows for it.
        ASSERT_NEAR(got[net.lowered().params[p]].as<double>()[i], want[i], 1e-10)
            << name(o.kind) << " step " << step << " param " << p << " element " << i;
      }
    }
  }
}

TEST(Updates, SgdFollowsItsEquations) {
  Optimizer sgd;
  expect_updates(sgd);
  sgd.weight_decay = 0.05;
  sgd.momentum = 0.9;
  expect_updates(sgd);
  sgd.nesterov = true;
  expect_updates(sgd);
}

TEST(Updates, AdamFollowsItsEquations) {
  Optimizer adam;
  adam.kind = OptimizerKind::adam;
  expect_updates(adam);
  adam.weight_decay = 0.05;
  expect_updates(adam);
  adam.kind = OptimizerKind::adamw;
  adam.beta1 = 0.8;
  adam.epsilon = 1e-3;
  expect_updates(adam);
}

TEST(Updates, ClippingScalesAllGradientsAlike) {
  Optimizer sgd;
  sgd.momentum = 0.9;
  expect_updates(sgd, 0.05);    // clips
  expect_updates(sgd, 1000.0);  // does not
}

}  // namespace
}  // namespace ridgeline::nn
