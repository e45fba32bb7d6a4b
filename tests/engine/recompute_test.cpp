#include <gtest/gtest.h>

#include "ridgeline/engine/plan/explain.h"
#include "ridgeline/engine/train/trainer.h"
#include "ridgeline/nn/activation_memory.h"
#include "tests/engine/small_run.h"

namespace ridgeline::engine {
namespace {

using testing::bits;
using testing::small_config;
using testing::small_set;
using testing::TempFolder;

struct Net {
  const char* name;
  double kept;  // at most this part of the activations
  const char* layers;
};

void PrintTo(const Net& net, std::ostream* out) { *out << net.name; }

const Net kNets[] = {
    {"Mlp", 0.7,
     R"(model.layers=[{type="linear",out=40},{type="gelu"},{type="dropout",p=0.3},)"
     R"({type="linear",out=40},{type="layernorm"},{type="tanh"},{type="linear",out=40},{type="gelu"},)"
     R"({type="linear",out=40},{type="gelu"},{type="dropout",p=0.1},{type="linear",out=40},)"
     R"({type="gelu"},{type="linear",out=4}])"},
    {"ConvWithBatchNorm", 0.7,
     R"(model.layers=[{type="conv2d",out=4,kernel=3,padding=1},)"
     R"({type="batchnorm"},{type="relu"},{type="conv2d",out=4,kernel=3,padding=1},{type="batchnorm"},)"
     R"({type="gelu"},{type="dropout",p=0.2},{type="maxpool2d",kernel=2},)"
     R"({type="conv2d",out=4,kernel=3,padding=1},{type="gelu"},{type="flatten"},)"
     R"({type="linear",out=4}])"},
    {"Branches", 0.7,
     R"(model.layers=[{type="linear",out=24,name="a"},{type="gelu",name="b"},)"
     R"({type="linear",out=24,name="c"},{type="gelu",name="d"},{type="linear",out=24,name="e"},)"
     R"({type="add",inputs=["b","e"],name="f"},{type="gelu",name="g"},{type="linear",out=24,name="h"},)"
     R"({type="add",inputs=["f","h"],name="i"},{type="gelu"},{type="linear",out=4}])"},
    {"LstmStack", 0.5,
     R"(model.layers=[{type="lstm",hidden=12,layers=3,dropout=0.3},{type="dropout",p=0.2},)"
     R"({type="gru",hidden=9,layers=2,bidirectional=true},{type="lstm",hidden=8,initial_state=true},)"
     R"({type="select"},{type="linear",out=4}])"},
};

struct Made {
  std::string bits;
  double loss;
  size_t live;
  double activations;
};

Made train(const Net& net, const std::vector<std::string>& kernels, std::vector<std::string> sets) {
  sets.emplace_back(net.layers);
  sets.emplace_back("train.batch=100");  // activations are more than weights
  Config config = small_config(sets);
  config.run.kernels = kernels;
  Machine machine(config.run);
  Trainer trainer(machine, config, small_set());
  while (trainer.step() < 4) trainer.advance(1);  // over the last, smaller batch of an epoch
  Made made{bits(trainer.snapshot()), trainer.losses().back(),
            trainer.runner().plan().memory().peak_live, 0};
  for (const double each :
       nn::activation_bytes(trainer.runner().lowered(), trainer.model().layers().size())) {
    made.activations += each;
  }
  return made;
}

class Recompute : public ::testing::TestWithParam<Net> {};

// One kernel per op, so that both runs compute with the same kernels: dropout masks, statistics and
// weights are identical to the last bit.
TEST_P(Recompute, GivesTheSameBitsInLessMemory) {
  const TempFolder folder;
  using Sets = std::vector<std::string>;
  for (const Sets& sets : {Sets{R"(train.optimizer={type="sgd",lr=0.05})", "train.clip_norm=0"},
                           Sets{R"(train.optimizer={type="adam",lr=0.01})"}}) {  // and clipping
    Sets with = sets;
    with.emplace_back("run.recompute=true");
    const Made plain = train(GetParam(), {"*.reference"}, sets);
    const Made again = train(GetParam(), {"*.reference"}, with);
    EXPECT_EQ(again.bits, plain.bits) << sets[0];
    EXPECT_LT(again.activations, GetParam().kept * plain.activations);
    EXPECT_LT(again.live, plain.live);
  }
}

TEST_P(Recompute, TrainsWithTheKernelsOfAPlan) {
  const TempFolder folder;
  for (const char* precision : {"run.precision=\"fp32\"", "run.precision=\"bf16\""}) {
    const Made plain = train(GetParam(), {}, {precision});
    const Made again = train(GetParam(), {}, {precision, "run.recompute=true"});
    EXPECT_NEAR(again.loss, plain.loss, plain.loss * (precision[15] == 'b' ? 0.05 : 1e-3));
  }
}

INSTANTIATE_TEST_SUITE_P(Nets, Recompute, ::testing::ValuesIn(kNets),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(RecomputePlan, SaysWhatItSaves) {
  const TempFolder folder;
  const Config config = small_config({"run.recompute=true", kNets[0].layers});
  const PlanReport report = explain_plan(config, small_set(), false);
  EXPECT_NE(report.text.find("recompute: "), std::string::npos) << report.text;
  EXPECT_NE(report.json.find("without_recompute"), std::string::npos);
  EXPECT_NE(to_toml(config).find("recompute = true"), std::string::npos);
  EXPECT_EQ(to_toml(small_config()).find("recompute"), std::string::npos);
}

}  // namespace
}  // namespace ridgeline::engine
