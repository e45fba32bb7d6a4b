// Planning a deep model: the work grows in proportion to the layers. Steps are counted, not timed.
#include <gtest/gtest.h>

#include <memory>

#include "ridgeline/nn/graph_config.h"
#include "ridgeline/nn/lower.h"
#include "ridgeline/plan/planner.h"
#include "ridgeline/registry.h"
#include "tests/nn/expect_error.h"
#include "tests/nn/read.h"

namespace ridgeline::nn {
namespace {

// Blocks of layers that are repeated, with a separate head.
struct Kind {
  const char* name;
  Shape input;
  std::vector<const char*> block, head;
  const char* optimizer;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"relu", {12}, {R"({ type = "relu" })"}, {}, "sgd"},
      {"mlp", {12}, {R"({ type = "linear", out = 12 })", R"({ type = "tanh" })"}, {}, "sgd"},
      {"mlp_adam", {12}, {R"({ type = "linear", out = 12 })", R"({ type = "relu" })"}, {}, "adam"},
      {"dropout",
       {12},
       {R"({ type = "linear", out = 12 })", R"({ type = "layernorm" })",
        R"({ type = "dropout", p = 0.5 })"},
       {},
       "sgd"},
      {"conv",
       {16, 4, 4},
       {R"({ type = "conv2d", out = 16, kernel = 3, padding = 1 })", R"({ type = "batchnorm" })",
        R"({ type = "relu" })"},
       {},
       "sgd"},
      {"pool",
       {16, 4, 4},
       {R"({ type = "conv2d", out = 16, kernel = 3, padding = 1 })", R"({ type = "relu" })",
        R"({ type = "maxpool2d", kernel = 3, stride = 1, padding = 1 })"},
       {},
       "sgd"},
      {"residual",
       {16, 4, 4},
       {R"({ type = "residual", layers = [{ type = "conv2d", out = 16, kernel = 3, padding = 1 },
                                          { type = "relu" }] })"},
       {},
       "sgd"},
      {"gru", {5, 8}, {R"({ type = "gru", hidden = 8 })"}, {R"({ type = "flatten" })"}, "sgd"},
  };
  return all;
}

// Blocks that are graphs themselves, as a config has them.
Model graph_of(const Kind& kind, size_t blocks) {
  std::string text = "layers = [";
  for (size_t i = 0; i < blocks; ++i) text += kind.block.front() + std::string(",\n");
  ConfigTable table = ConfigTable::parse(text + R"({ type = "linear", out = 4 }])", "net.toml");
  return Model(read_graph(table), kind.input);
}

Model model_of(const Kind& kind, size_t blocks) {
  if (kind.name == std::string("residual")) return graph_of(kind, blocks);
  std::vector<LayerPtr> layers, block;
  for (const char* text : kind.block) block.push_back(read(text));
  for (size_t i = 0; i < blocks; ++i) layers.insert(layers.end(), block.begin(), block.end());
  for (const char* text : kind.head) layers.push_back(read(text));
  layers.push_back(read(R"({ type = "linear", out = 4 })"));
  return Model(layers, kind.input);
}

Lowered lowered_of(const Kind& kind, size_t blocks) {
  LowerOptions options;
  options.batch = 4;
  options.set_samples = options.order_samples = 8;
  options.classes = 4;
  options.optimizer.kind =
      kind.optimizer == std::string("adam") ? OptimizerKind::adam : OptimizerKind::sgd;
  options.optimizer.momentum = options.optimizer.kind == OptimizerKind::sgd ? 0.9 : 0;
  return lower(model_of(kind, blocks), options);
}

// Times that make the search compare kernels, the same in every block.
class InventedTimes final : public Stopwatch {
 public:
  double kernel(const Choice& choice) override {
    const size_t hash = std::hash<std::string>{}(choice.kernel->name);
    return 1e-6 * double(1 + hash % 7) * double(std::max<size_t>(1, choice.end - choice.begin));
  }
  double whole(const Choices& choices) override {
    double sum = 0;
    for (const Choice& choice : choices) sum += choice.seconds;
    return sum;
  }
};

class Planning : public ::testing::TestWithParam<Kind> {};

TEST_P(Planning, StepsAreProportionalToLayers) {
  const std::unique_ptr<Runtime> runtime = make_runtime(Device{}, 1);
  const KernelTable kernels = all_kernels();
  InventedTimes times;
  for (const bool tune : {false, true}) {
    PlanOptions options;
    options.tune = tune;
    std::vector<PlanningSteps> steps;
    std::vector<size_t> ops;
    for (const size_t blocks : {100, 200, 400, 800}) {
      const Lowered lowered = lowered_of(GetParam(), blocks);
      const Planned planned = plan_program(lowered.program, kernels, *runtime, options, times);
      steps.push_back(planned.explanation.steps);
      ops.push_back(lowered.program.ops.size());
      EXPECT_GT(steps.back().asked, 0u);
      EXPECT_GT(steps.back().walked, 0u);
    }
    for (size_t i = 1; i < steps.size(); ++i) {
      const auto grows = [&](size_t PlanningSteps::*which) {
        const double now = double(steps[i].*which) / double(ops[i]);
        return now * double(ops[0]) / double(steps[0].*which);
      };
      EXPECT_LE(grows(&PlanningSteps::asked), 1.01) << ops[i] << " ops, tune " << tune;
      EXPECT_LE(grows(&PlanningSteps::looked), 1.01) << ops[i] << " ops, tune " << tune;
      // Of up to 64 ways to hold values at a position, a few more or fewer are followed.
      EXPECT_LE(grows(&PlanningSteps::walked), 2) << ops[i] << " ops, tune " << tune;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Planning, ::testing::ValuesIn(kinds()),
                         [](const auto& info) { return info.param.name; });

// A list of choices that frees itself node by node would overflow the stack here.
TEST(DeepModel, OfAllLayersAllowedIsPlanned) {
  const Kind relu = kinds().front();
  const Lowered lowered = lowered_of(relu, size_t(kMostLayers) - 1);
  const std::unique_ptr<Runtime> runtime = make_runtime(Device{}, 1);
  const KernelTable kernels = all_kernels();
  InventedTimes times;
  const Planned planned = plan_program(lowered.program, kernels, *runtime, {}, times);
  EXPECT_FALSE(planned.choices.empty());
  for (const Candidate& candidate : planned.explanation.candidates) {
    ASSERT_FALSE(candidate.cover.reason.starts_with("the next op")) << candidate.kernel->name;
  }
}

TEST(DeepModel, OfMoreLayersIsRefused) {
  test::expect_error(ErrorKind::usage, {"4097 layers", "at most 4096"},
                     [] { model_of(kinds().front(), size_t(kMostLayers)); });
  std::vector<LayerPtr> stacks;
  for (int i = 0; i < 5; ++i)
    stacks.push_back(read(R"({ type = "gru", hidden = 1, layers = 1000 })"));
  test::expect_error(ErrorKind::usage, {"5000 layers"}, [&] { Model(stacks, {2, 1}); });
}

}  // namespace
}  // namespace ridgeline::nn
