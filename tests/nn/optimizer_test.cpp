#include "ridgeline/nn/optimizer.h"

#include <gtest/gtest.h>

#include "tests/nn/expect_error.h"

namespace ridgeline::nn {
namespace {

Optimizer read(const std::string& text) {
  ConfigTable table = ConfigTable::parse("o = " + text, "t.toml");
  return read_optimizer(table, "o");
}

TEST(Optimizer, DefaultsArePyTorchs) {
  EXPECT_EQ(read("{ type = \"adam\" }").lr, 1e-3);
  EXPECT_EQ(read("{ type = \"adam\" }").weight_decay, 0);
  EXPECT_EQ(read("{ type = \"adamw\" }").weight_decay, 0.01);
  EXPECT_EQ(read("{}").kind, OptimizerKind::sgd);
}

TEST(Optimizer, StateFollowsTheKind) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(state_names(read("{ type = \"sgd\" }")), Names{});
  EXPECT_EQ(state_names(read("{ type = \"sgd\", momentum = 0.5 }")), Names{"momentum"});
  EXPECT_EQ(state_names(read("{ type = \"adamw\" }")), (Names{"m", "v"}));
}

TEST(Optimizer, ReadsBackWhatItWrites) {
  for (const char* text : {"{ type = \"sgd\", lr = 1, momentum = 0.9, nesterov = true }",
                           "{ type = \"adam\", lr = 3e-4, beta1 = 0.8, epsilon = 1e-7 }",
                           "{ type = \"adamw\", weight_decay = 0.1 }"}) {
    const Optimizer optimizer = read(text);
    EXPECT_EQ(read(to_toml(optimizer)), optimizer) << to_toml(optimizer);
  }
}

TEST(Optimizer, RefusesBadSettings) {
  const auto reading = [](const char* text) { return [text] { read(text); }; };
  using test::expect_error;
  expect_error(ErrorKind::usage, {"o.lr", "greater than 0", "0"}, reading("{ lr = 0 }"));
  expect_error(ErrorKind::usage, {"o.lr", "finite", "inf"}, reading("{ lr = inf }"));
  expect_error(ErrorKind::usage, {"o.lr", "number", "'fast'"}, reading("{ lr = \"fast\" }"));
  expect_error(ErrorKind::usage, {"o.momentum", "below 1"}, reading("{ momentum = 1.0 }"));
  expect_error(ErrorKind::usage, {"nesterov", "momentum"}, reading("{ nesterov = true }"));
  expect_error(ErrorKind::usage, {"unknown key 'beta1'"},
               reading("{ type = \"sgd\", beta1 = 0.9 }"));
  expect_error(ErrorKind::usage, {"o.epsilon", "greater than 0"},
               reading("{ type = \"adam\", epsilon = 0.0 }"));
  expect_error(ErrorKind::usage, {"'adamx'", "did you mean 'adam'"},
               reading("{ type = \"adamx\" }"));
}

}  // namespace
}  // namespace ridgeline::nn
