// Populations on a GPU: members with joint launches, and others, which train one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ridgeline/engine/population/population.h"
#include "ridgeline/engine/train/session.h"
#include "ridgeline/registry.h"
#include "tests/engine/small_run.h"

namespace ridgeline::engine {
namespace {

using ::testing::ElementsAre;
using testing::quiet;
using testing::small_config;
using testing::TempFolder;

// The images of small_set() with a border, 8 x 8: inputs in multiples of 16.
data::SampleSet bordered(const data::SampleSet& from) {
  data::SampleSet set;
  set.inputs = HostTensor(DType::uint8, {from.size(), 8, 8});
  set.targets = HostTensor(DType::int32, {from.size()});
  for (int64_t i = 0; i < from.size(); ++i) {
    set.targets.span<int32_t>()[size_t(i)] = from.targets.span<const int32_t>()[size_t(i)];
    for (int64_t p = 0; p < 36; ++p) {
      set.inputs.span<uint8_t>()[size_t(i * 64 + (p / 6 + 1) * 8 + p % 6 + 1)] =
          from.inputs.span<const uint8_t>()[size_t(i * 36 + p)];
    }
  }
  set.classes = from.classes;
  set.name = from.name;
  set.hash = from.hash;
  return set;
}

std::shared_ptr<const data::DataSet> make_set() {
  const auto small = testing::small_set();
  auto set = std::make_shared<data::DataSet>();
  set->train = bordered(small->train);
  set->test = bordered(small->test);
  return set;
}

struct Case {
  const char* name;
  const char* optimizer;
  std::vector<std::string> sets;
  bool joint;  // whether the launches are joint
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const std::string kPlain =
    "model.layers=[{type=\"linear\",out=64},{type=\"relu\"},{type=\"linear\",out=4}]";
const std::string kNoClip = "train.clip_norm=0", kUnit = "data.scale=\"unit\"";
const std::string kBf16 = "run.precision=\"bf16\"", kTf32 = "run.precision=\"tf32\"",
                  kHalf = "run.weights=\"half\"";

const Case kCases[] = {
    {"sgd_tf32", R"({type="sgd",lr=0.1})", {kPlain, kNoClip, kUnit, kTf32}, true},
    {"sgd_bf16", R"({type="sgd",lr=0.1})", {kPlain, kNoClip, kUnit, kBf16}, true},
    {"sgd_half", R"({type="sgd",lr=0.1})", {kPlain, kNoClip, kUnit, kBf16, kHalf}, true},
    {"momentum_tf32",
     R"({type="sgd",lr=0.05,momentum=0.9,weight_decay=1e-4})",
     {kPlain, kNoClip, kUnit, kTf32},
     true},
    {"nesterov_bf16",
     R"({type="sgd",lr=0.05,momentum=0.9,nesterov=true})",
     {kPlain, kNoClip, kUnit, kBf16},
     true},
    {"adam_bf16", R"({type="adam",lr=0.01})", {kPlain, kNoClip, kUnit, kBf16}, true},
    {"adamw_tf32",
     R"({type="adamw",lr=0.01,weight_decay=0.05})",
     {kPlain, kNoClip, kUnit, kTf32},
     true},
    {"clipped_fp32", R"({type="adam",lr=0.01})", {}, false},
};

class PopulationOnGpu : public ::testing::TestWithParam<Case> {};

TEST_P(PopulationOnGpu, MembersEqualTheirSoloRunsBitForBit) {
  if (gpus().empty()) GTEST_SKIP() << gpu_support().refusal;
  const TempFolder folder;
  const auto set = make_set();
  std::vector<Member> members;
  for (int i = 0; i < 6; ++i) {
    std::vector<std::string> sets = GetParam().sets;
    sets.insert(sets.end(),
                {"run.device=\"cuda\"", "run.deterministic=true", "train.seed=" + std::to_string(i),
                 "train.epochs=" + std::to_string(2 + i % 2),
                 std::string("train.optimizer=") + GetParam().optimizer});
    members.push_back({small_config(sets), set});
    members.back().config.train.optimizer.lr *= 1 - 0.1 * i;
  }
  std::map<size_t, MemberResult> results;
  PopulationOptions options;
  options.models = true;
  options.finished = [&](size_t member, const MemberResult& result) { results[member] = result; };
  const PopulationResult all = train_population(members, options);
  ASSERT_FALSE(all.failed) << all.failed->what();
  EXPECT_EQ(all.layout.side_by_side, GetParam().joint ? 6 : 1);
  ASSERT_EQ(results.size(), members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    TrainOptions alone = quiet();
    alone.set = set;
    alone.any_ceilings = true;
    TrainSession session(members[i].config, alone);
    session.run_to_epoch(members[i].config.train.epochs);
    session.finish();
    EXPECT_EQ(session.model_bytes(), results[i].model) << "member " << i;
    if (!GetParam().joint) continue;
    EXPECT_THAT(session.kernels().train, ElementsAre("cuda.mlp_train.population"));
    EXPECT_THAT(results[i].report.kernels.train, ElementsAre("cuda.mlp_train.population"));
  }
}

INSTANTIATE_TEST_SUITE_P(Each, PopulationOnGpu, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ridgeline::engine
