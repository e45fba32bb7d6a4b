// Plans with kernels that run between graphs.
#include "ridgeline/plan/segments.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "ridgeline/core/buffer.h"

namespace ridgeline {
namespace {

using Kinds = std::string;  // one letter per choice

// g: a kernel in a graph; b: one between graphs; s, S: likewise, each the start of a sum; c: a
// conversion.
struct ChosenKernels {
  explicit ChosenKernels(const Kinds& kinds) {
    const Shape one{1};
    const Value x = program.add_value("x", DType::fp32, one, Role::param);
    const Value sum = program.add_value("sum", DType::fp32, one, Role::param);
    const Value token = program.add_value("token", DType::int64, one, Role::param);
    for (const char kind : kinds) {
      const size_t begin = program.ops.size();
      if (kind == 's' || kind == 'S') {
        program.add(AllReduceStart{{x}, {sum}, token, 2, DType::fp32});
      } else if (kind != 'c') {
        program.add(Activation{ActivationKind::relu, x, sum});
      }
      Choice choice;
      choice.kernel = kind == 'b' || kind == 'S' ? &between : &within;
      choice.begin = begin;
      choice.end = program.ops.size();
      choice.cover = Cover::of(choice.end - choice.begin);
      if (kind == 'c') choice.converted = x.id;
      choices.push_back(choice);
    }
    within.name = "within";
    between.name = "between";
    between.traits.between_graphs = true;
  }

  Program program;
  Choices choices;
  Kernel within, between;
};

std::vector<Segment> cut(const Kinds& kinds) {
  const ChosenKernels chosen(kinds);
  return segments_of(chosen.program, chosen.choices);
}

using Segments = std::vector<Segment>;

TEST(Segments, AreOneGraphWhereNoKernelRunsBetweenGraphs) {
  EXPECT_EQ(cut("ggg"), (Segments{{0, 3, true}}));
  EXPECT_EQ(cut("gsgcg"), (Segments{{0, 5, true}}));
  EXPECT_EQ(cut(""), (Segments{{0, 0, true}}));
}

TEST(Segments, EndAndBeginAtKernelsBetweenGraphs) {
  EXPECT_EQ(cut("gSg"), (Segments{{0, 1, true}, {1, 2, false}, {2, 3, true}}));
  EXPECT_EQ(cut("cgbbgg"), (Segments{{0, 2, true}, {2, 4, false}, {4, 6, true}}));
  EXPECT_EQ(cut("bgS"), (Segments{{0, 1, false}, {1, 2, true}, {2, 3, false}}));
  EXPECT_EQ(cut("Sb"), (Segments{{0, 2, false}}));
}

TEST(Segments, HaveNoGraphThatEndsWithASumUnderWay) {
  EXPECT_EQ(cut("gsgSg"), (Segments{{0, 5, false}}));
  EXPECT_EQ(cut("gSgsg"), (Segments{{0, 5, false}}));
}

// A runtime that claims to be a GPU and records what its graphs hold.
class GraphRecorder final : public Runtime {
 public:
  Device device() const override { return {DeviceKind::cuda, 0}; }
  std::string fingerprint() const override { return "recorder"; }
  void* allocate(size_t bytes) override { return std::calloc(bytes, 1); }
  void release(void* memory) noexcept override { std::free(memory); }
  void upload(void*, const void*, size_t) override {}
  void download(void*, const void*, size_t) override {}
  void synchronize() override {}
  double time(const std::function<void()>&, double) override { return 0; }
  std::function<void()> capture(std::function<void()> step, int64_t count) override {
    const std::string before = std::exchange(log, "");
    for (int64_t i = 0; i < count; ++i) step();
    graphs.push_back(log);
    log = before;
    return [this, held = graphs.back()] { log += "[" + held + "]"; };
  }

  std::string log;                  // what ran: letters by themselves, graphs in brackets
  std::vector<std::string> graphs;  // what each holds
};

// Runs a plan `steps` at a time; each choice writes its letter.
std::string run(const Kinds& kinds, int64_t repeats, int64_t steps, GraphRecorder& runtime) {
  ChosenKernels chosen(kinds);
  chosen.program.repeats = repeats;
  size_t prepared = 0;
  const auto prepare = [&](const Span&, const Binding&) {
    return make_step([&runtime, letter = kinds[prepared++]] { runtime.log += letter; });
  };
  chosen.within.prepare = chosen.between.prepare = prepare;
  const HostTensor memory(DType::int64, {1});
  Externals externals;
  for (const ValueInfo& info : chosen.program.values) externals[info.value.id] = memory.view();
  Plan plan(runtime, chosen.program, chosen.choices, externals);
  runtime.log.clear();
  plan.run(steps);
  return runtime.log;
}

TEST(Segments, AreLaunchedInTurnStepByStep) {
  GraphRecorder one;
  EXPECT_EQ(run("gSggSg", 4, 1, one), "[g]S[gg]S[g]");
  GraphRecorder many;
  EXPECT_EQ(run("gSggSg", 4, 3, many), "[g]S[gg]S[g][g]S[gg]S[g][g]S[gg]S[g]");
  EXPECT_EQ(many.graphs, (std::vector<std::string>{"g", "gg", "g"}));  // made once for all
  GraphRecorder both_kinds;
  EXPECT_EQ(run("gsgSg", 4, 2, both_kinds), "gsgSggsgSg");
  EXPECT_TRUE(both_kinds.graphs.empty());
}

TEST(Segments, OfOneGraphHoldAllStepsOfALaunch) {
  GraphRecorder runtime;
  EXPECT_EQ(run("gsg", 4, 4, runtime), "[gsggsggsggsg]");
  EXPECT_EQ(runtime.graphs, (std::vector<std::string>{"gsg", "gsggsggsggsg"}));
}

}  // namespace
}  // namespace ridgeline
