// The memory and the execution of a plan, with real kernels.
#include "ridgeline/plan/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "ridgeline/core/buffer.h"
#include "ridgeline/plan/planner.h"
#include "ridgeline/registry.h"

namespace ridgeline {
namespace {

constexpr int64_t kWidth = 100;

struct Net {
  Program program;
  Value x, y;
  std::vector<Value> between;
};

// y = relu(tanh(relu(... x))): each temporary ends when the next is made.
Net deep_chain(int depth) {
  Net net;
  net.x = net.program.add_value("x", DType::fp64, {kWidth}, Role::input);
  Value value = net.x;
  for (int i = 0; i < depth; ++i) {
    const bool last = i + 1 == depth;
    const Value next = net.program.add_value(fmt::format("v{}", i), DType::fp64, {kWidth},
                                             last ? Role::output : Role::temp);
    const ActivationKind kind = i % 2 == 0 ? ActivationKind::tanh : ActivationKind::sigmoid;
    net.program.add(Activation{kind, value, next});
    if (!last) net.between.push_back(next);
    value = next;
  }
  net.y = value;
  return net;
}

class PlanTest : public ::testing::Test {
 protected:
  Plan make(const Net& net, const HostTensor& x, const HostTensor& y) {
    PlanOptions options;
    options.tune = false;
    const Planned planned = plan_program(net.program, table_, *runtime_, options);
    return Plan(*runtime_, net.program, planned.choices,
                {{net.x.id, x.view()}, {net.y.id, y.view()}});
  }

  std::unique_ptr<Runtime> runtime_ = make_runtime(Device{}, 2);
  KernelTable table_ = all_kernels();
};

TEST_F(PlanTest, MemoryIsWhatLivesAtOnceHoweverDeepTheProgram) {
  const HostTensor x(DType::fp64, {kWidth}), y(DType::fp64, {kWidth});
  const size_t one = align_up(kWidth * sizeof(double));
  for (const int depth : {2, 3, 8, 30}) {
    const Net net = deep_chain(depth);
    const Plan plan = make(net, x, y);
    EXPECT_EQ(plan.memory().arena, plan.memory().peak_live) << depth;
    EXPECT_LE(plan.memory().arena, 2 * one) << depth;
    EXPECT_EQ(plan.memory().sum, size_t(depth - 1) * kWidth * sizeof(double)) << depth;
  }
}

TEST_F(PlanTest, RunsInOrderAndGivesTheSameEveryTime) {
  const HostTensor x(DType::fp64, {kWidth}), y(DType::fp64, {kWidth});
  for (int64_t i = 0; i < kWidth; ++i) x.span<double>()[size_t(i)] = 0.03 * double(i) - 1.0;
  const Net net = deep_chain(4);
  Plan plan = make(net, x, y);
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  for (int pass = 0; pass < 3; ++pass) {
    plan.run();
    for (int64_t i = 0; i < kWidth; ++i) {
      const double v = x.span<double>()[size_t(i)];
      EXPECT_NEAR(y.span<double>()[size_t(i)], sigmoid(std::tanh(sigmoid(std::tanh(v)))), 1e-15);
    }
    std::fill(y.span<double>().begin(), y.span<double>().end(), -1.0);
  }
}

TEST_F(PlanTest, AMissingOutsideValueIsSaidByName) {
  const HostTensor x(DType::fp64, {kWidth});
  const Net net = deep_chain(2);
  PlanOptions options;
  options.tune = false;
  const Planned planned = plan_program(net.program, table_, *runtime_, options);
  try {
    const Plan plan(*runtime_, net.program, planned.choices, {{net.x.id, x.view()}});
    FAIL() << "bound without memory for the output";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("v1"), std::string::npos) << error.what();
  }
}

TEST_F(PlanTest, PeekShowsATemporary) {
  const HostTensor x(DType::fp64, {kWidth}), y(DType::fp64, {kWidth});
  const Net net = deep_chain(2);
  Plan plan = make(net, x, y);
  plan.run();
  const Tensor middle = plan.peek(net.between.front().id);
  ASSERT_NE(middle.data, nullptr);
  EXPECT_EQ(middle.as<double>()[5], 0.0);  // tanh(0)
  EXPECT_EQ(plan.peek(net.x.id).data, x.view().data);
}

// A runtime that claims to be a GPU with this much memory.
class SmallGpu final : public Runtime {
 public:
  explicit SmallGpu(size_t bytes) : bytes_(bytes) {}
  Device device() const override { return {DeviceKind::cuda, 0}; }
  std::string fingerprint() const override { return "small"; }
  void* allocate(size_t bytes) override {
    if (bytes > bytes_) throw_error(ErrorKind::device, "out of memory");
    return std::calloc(bytes, 1);
  }
  void release(void* memory) noexcept override { std::free(memory); }
  void upload(void*, const void*, size_t) override {}
  void download(void*, const void*, size_t) override {}
  void synchronize() override {}
  double time(const std::function<void()>&, double) override { return 0; }

 private:
  size_t bytes_;
};

// On a GPU memory is not reused for a few steps, so that they can run concurrently; a GPU without
// spare memory reuses it at once.
TEST(PlanMemory, IsSpentOnConcurrentStepsOnlyIfThereIsEnough) {
  const Net net = deep_chain(30);
  const HostTensor x(DType::fp64, {kWidth}), y(DType::fp64, {kWidth});
  const Kernel kernel{"kernel", DeviceKind::cuda, [](const RemainingOps&) { return Cover::of(1); },
                      [](const Span&, const Binding&) { return make_step([] {}); }};
  Choices choices(net.program.ops.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    choices[i].kernel = &kernel;
    choices[i].begin = i;
    choices[i].end = i + 1;
    choices[i].cover = Cover::of(1);
  }
  const size_t one = align_up(kWidth * sizeof(double));
  const auto arena_of = [&](size_t bytes) {
    SmallGpu gpu(bytes);
    const Plan plan(gpu, net.program, choices, {{net.x.id, x.view()}, {net.y.id, y.view()}});
    return plan.memory().arena;
  };
  const size_t ample = arena_of(size_t{1} << 30);
  EXPECT_GT(ample, 2 * one);
  EXPECT_EQ(arena_of(ample), ample);
  EXPECT_EQ(arena_of(ample - 1), 2 * one);
  try {
    arena_of(2 * one - 1);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    const std::string most = fmt::format("{} bytes, is in use at kernel: ", 2 * one);
    EXPECT_NE(std::string(error.what()).find(most + "activation"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace ridgeline
