// The one-hot convolution as a layer: its name, its inputs, and that it equals the ordinary
// convolution over one-hot columns.
#include "ridgeline/nn/one_hot_conv.h"

#include <gtest/gtest.h>

#include "ridgeline/nn/builder.h"
#include "ridgeline/nn/conv.h"
#include "tests/nn/expect_error.h"
#include "tests/nn/read.h"
#include "tests/support/cases.h"
#include "tests/support/oracle.h"

namespace ridgeline::nn {
namespace {

using test::Arrays;
using test::expect_error;

TEST(OneHotConv, HasConv1dsWeights) {
  const LayerPtr layer = read("{ type = \"onehot_conv1d\", symbols = 70, out = 8, kernel = 7 }");
  EXPECT_EQ(layer->output({1014}), (Shape{8, 1008}));
  EXPECT_EQ(layer->codes_below(), 71);
  const auto params = layer->params({1014});
  const auto same = read("{ type = \"conv1d\", out = 8, kernel = 7 }")->params({70, 1014});
  ASSERT_EQ(params.size(), same.size());
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_EQ(params[i].suffix, same[i].suffix);
    EXPECT_EQ(params[i].shape, same[i].shape);
    EXPECT_EQ(params[i].fans.in, same[i].fans.in);
    EXPECT_EQ(params[i].fans.out, same[i].fans.out);
  }
  const std::string written = layer->to_toml();
  EXPECT_EQ(read(written)->to_toml(), written);
}

TEST(OneHotConv, RefusesWhatDoesNotFit) {
  const LayerPtr layer = read("{ type = \"onehot_conv1d\", symbols = 3, out = 2, kernel = 5 }");
  expect_error(ErrorKind::usage, {"kernel of 5", "4 characters"}, [&] { layer->output({4}); });
  expect_error(ErrorKind::usage, {"first layer"}, [&] {
    Model model({read("{ type = \"relu\" }"), layer}, {9});
    LowerOptions options;
    options.mode = Mode::infer;
    lower(model, options);
  });
}

// Compared with conv1d over columns that are made here.
TEST(OneHotConv, IsTheConvolutionOfOneHotColumns) {
  constexpr int64_t kSymbols = 3, kOut = 4, kKernel = 2, kLength = 6, kSamples = 5;
  test::CaseBuilder c("both", DType::fp64);
  const Value token = c.make("token", DType::int32, {kSamples, kLength}, Role::input,
                             test::normal(1), kSymbols + 1);
  const Value w = c.param("w", {kOut, kSymbols, kKernel}), b = c.param("b", {kOut});
  const Value columns = c.in("columns", {kSamples, kSymbols * kLength});
  const Value y = c.out("y", {kSamples, kOut * (kLength - 1)}), z = c.out("z", y.shape);
  Conv2dShape shape;
  shape.in = {kSymbols, 1, kLength};
  shape.k = kOut;
  shape.window.w.kernel = kKernel;
  c.add(OneHotConv1d{token, w, b, y});
  c.add(Conv2d{columns, w, b, z, shape});
  const test::Case both = c.done();
  Arrays arrays = both.inputs();
  for (int64_t i = 0; i < columns.shape.numel(); ++i) {
    const int64_t sample = i / (kSymbols * kLength), s = i / kLength % kSymbols, t = i % kLength;
    const int32_t code = arrays[token].as<int32_t>()[sample * kLength + t];
    arrays[columns].as<double>()[i] = code == s ? 1.0 : 0.0;
  }
  test::Reference reference;
  reference.run(both.program, 0, 2, arrays);
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    EXPECT_NEAR(arrays[y].as<double>()[i], arrays[z].as<double>()[i], 1e-14);
  }
}

}  // namespace
}  // namespace ridgeline::nn
