#include "ridgeline/nn/model.h"

#include <gtest/gtest.h>

#include "ridgeline/nn/activation.h"
#include "ridgeline/nn/dropout.h"
#include "ridgeline/nn/flatten.h"
#include "ridgeline/nn/linear.h"
#include "tests/nn/expect_error.h"
#include "tests/nn/read.h"

namespace ridgeline::nn {
namespace {

TEST(Model, NamesWeightsAsPyTorchsSequentialDoes) {
  const Model model({std::make_shared<FlattenLayer>(), std::make_shared<LinearLayer>(5),
                     std::make_shared<ActivationLayer>(ActivationKind::relu),
                     std::make_shared<LinearLayer>(3, false)},
                    {4, 2});
  ASSERT_EQ(model.params().size(), 3u);
  EXPECT_EQ(model.params()[0].name, "1.weight");
  EXPECT_EQ(model.params()[1].name, "1.bias");
  EXPECT_EQ(model.params()[2].name, "3.weight");
  EXPECT_EQ(model.params()[0].value.view().shape, (Shape{5, 8}));
  EXPECT_EQ(model.params()[1].value.view().shape, (Shape{5}));
  EXPECT_EQ(model.params()[2].value.view().shape, (Shape{3, 5}));
  EXPECT_EQ(model.first_param(1), 0u);
  EXPECT_EQ(model.first_param(2), 2u);
  EXPECT_EQ(model.first_param(4), 3u);
  EXPECT_EQ(model.output(), Shape{3});
  EXPECT_EQ(model.input_of(1), Shape{8});
  EXPECT_EQ(model.parameter_count(), 5 * 8 + 5 + 3 * 5);
}

TEST(Model, LinearFlattensItsInput) {
  const Model model({std::make_shared<LinearLayer>(10)}, {28, 28});
  EXPECT_EQ(model.params()[0].value.view().shape, (Shape{10, 784}));
  // The bias starts by the weight's fans, as in PyTorch.
  EXPECT_EQ(model.params()[1].fans.in, 784);
}

TEST(Model, ElementwiseLayersKeepTheShape) {
  const Shape shape{3, 4, 5};
  for (const ActivationKind kind : {ActivationKind::relu, ActivationKind::tanh,
                                    ActivationKind::sigmoid, ActivationKind::gelu}) {
    EXPECT_EQ(ActivationLayer(kind).output(shape), shape);
  }
  EXPECT_EQ(DropoutLayer(0.5).output(shape), shape);
  EXPECT_EQ(FlattenLayer().output(shape), Shape{60});
}

TEST(Model, NamesTheLayerThatDoesNotFit) {
  test::expect_error(ErrorKind::usage, {"layer 1", "linear", "[0]", "[3]"}, [] {
    Model({std::make_shared<FlattenLayer>(), std::make_shared<LinearLayer>(3)}, {0, 4});
  });
  test::expect_error(ErrorKind::usage, {"layer 0", "linear", "overflows"}, [] {
    Model({std::make_shared<LinearLayer>(int64_t{1} << 31)}, {int64_t{1} << 40});
  });
  test::expect_error(ErrorKind::usage, {"no layers"}, [] { Model({}, {4}); });
}

TEST(Model, NamesTheLayerThatDoesNotFitIntoMemory) {
  test::expect_error(ErrorKind::device,
                     {"wanted", "layer 2 (linear)", "weight [70368744177664, 7]"}, [] {
                       Model({std::make_shared<LinearLayer>(7), std::make_shared<FlattenLayer>(),
                              std::make_shared<LinearLayer>(int64_t{1} << 46)},
                             {3});
                     });
}

TEST(Model, InitialiseIsRepeatableAndDiffersByWeight) {
  const auto make = [](uint64_t seed) {
    Model model({std::make_shared<LinearLayer>(4), std::make_shared<LinearLayer>(4)}, {4});
    model.initialise(seed);
    std::vector<std::vector<float>> all;
    for (const Param& param : model.params()) {
      const auto values = param.value.span<float>();
      all.emplace_back(values.begin(), values.end());
    }
    return all;
  };
  EXPECT_EQ(make(3), make(3));
  EXPECT_NE(make(3), make(4));
  EXPECT_NE(make(3)[0], make(3)[2]);
}

TEST(Layers, ReadBackWhatTheyWrite) {
  for (const char* text :
       {"{ type = \"linear\", out = 7 }",
        "{ type = \"linear\", out = 7, bias = false, init = \"he\" }",
        "{ type = \"linear\", out = 1, init = { type = \"normal\", std = 0.01 }, bias_init = "
        "\"zeros\" }",
        "{ type = \"relu\" }", "{ type = \"tanh\" }", "{ type = \"sigmoid\" }",
        "{ type = \"gelu\" }", "{ type = \"dropout\", p = 0.1 }", "{ type = \"flatten\" }"}) {
    const std::string written = read(text)->to_toml();
    EXPECT_EQ(read(written)->to_toml(), written);
  }
}

TEST(Layers, RegistryNamesEachLayerAsItNamesItself) {
  for (const std::string& type : layer_types()) {
    std::string more;  // keys without a default
    if (type == "linear" || type.starts_with("conv")) more = ", out = 1";
    const bool window =
        type.starts_with("conv") || type.ends_with("pool1d") || type.ends_with("pool2d");
    if (window) more += ", kernel = 1";
    if (type == "onehot_conv1d") more = ", symbols = 1, out = 1, kernel = 1";
    if (type == "embedding") more = ", vocabulary = 1, out = 1";
    if (type == "rnn" || type == "gru" || type == "lstm") more = ", hidden = 1";
    if (type == "groupnorm") more = ", groups = 1";
    if (type == "reshape") more = ", shape = 1";
    if (type == "transpose") more = ", axes = 0";
    if (type == "fields") more = ", names = \"x\"";
    if (type == "pad") more = ", padding = 1";
    if (type == "upsample") more = ", factor = 1";
    if (type == "residual") continue;  // a block of layers, which graph_config.h reads
    EXPECT_EQ(read("{ type = \"" + std::string(type) + "\"" + more + " }")->type(), type);
  }
}

TEST(Layers, RefuseBadSettings) {
  const auto reading = [](const char* text) { return [text] { read(text); }; };
  using test::expect_error;
  expect_error(ErrorKind::usage, {"t.toml:1:", "'lienar'", "did you mean 'linear'"},
               reading("{ type = \"lienar\" }"));
  expect_error(ErrorKind::usage, {"layer.type", "missing", "linear, relu"}, reading("{ out = 3 }"));
  expect_error(ErrorKind::usage, {"layer.out", "missing"}, reading("{ type = \"linear\" }"));
  expect_error(ErrorKind::usage, {"layer.out", "at least 1", "0"},
               reading("{ type = \"linear\", out = 0 }"));
  expect_error(ErrorKind::usage, {"layer.out", "whole number", "2.5"},
               reading("{ type = \"linear\", out = 2.5 }"));
  expect_error(ErrorKind::usage, {"unknown key 'outs'", "did you mean 'out'"},
               reading("{ type = \"linear\", out = 2, outs = 3 }"));
  expect_error(ErrorKind::usage, {"bias_init", "no bias"},
               reading("{ type = \"linear\", out = 2, bias = false, bias_init = \"zeros\" }"));
  expect_error(ErrorKind::usage, {"layer.p", "below 1"},
               reading("{ type = \"dropout\", p = 1.0 }"));
  expect_error(ErrorKind::usage, {"layer.p", "at least 0"},
               reading("{ type = \"dropout\", p = -0.1 }"));
  expect_error(ErrorKind::usage, {"layer.p", "finite", "nan"},
               reading("{ type = \"dropout\", p = nan }"));
  expect_error(ErrorKind::usage, {"unknown key 'out'"}, reading("{ type = \"relu\", out = 3 }"));
}

}  // namespace
}  // namespace ridgeline::nn
