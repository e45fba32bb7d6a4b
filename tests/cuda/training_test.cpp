// Whole programs on the GPU: compared with the CPU, and single steps compared with launches of
// many.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ridgeline/cuda/kernels.h"
#include "ridgeline/nn/activation.h"
#include "ridgeline/nn/dropout.h"
#include "ridgeline/nn/linear.h"
#include "ridgeline/nn/lower.h"
#include "ridgeline/plan/planner.h"
#include "tests/cuda/device_values.h"
#include "tests/cuda/gpu.h"
#include "tests/support/compare.h"

namespace ridgeline::test {
namespace {

Plan plan_on(Runtime& runtime, const Program& program, const DeviceValues& values, bool tune) {
  static const KernelTable table = cuda::kernels();  // plans point into it
  PlanOptions options;
  options.tune = tune;
  options.seconds_per_kernel = 0.001;
  const Planned planned = plan_program(program, table, runtime, options);
  return Plan(runtime, program, planned.choices, values.externals());
}

void expect_same_bits(const Program& program, const Arrays& a, const Arrays& b) {
  for (const ValueInfo& info : program.values) {
    if (info.role == Role::temp) continue;
    const Tensor &x = a[info.value], &y = b[info.value];
    EXPECT_EQ(std::memcmp(x.data, y.data, x.bytes()), 0) << info.name;
  }
}

class CudaTraining : public GpuTest {};

TEST_F(CudaTraining, WholeStepsAgreeWithTheOracle) {
  for (const DType dtype : kFloats) {
    for (const bool tune : {false, true}) {
      for (const Case& c : training_cases(dtype)) {
        SCOPED_TRACE(c.name + (tune ? ", tuned" : ""));
        const Arrays inputs = c.inputs();
        Bounds oracle(c.program, inputs.widened());
        for (int64_t step = 0; step < c.steps; ++step) {
          for (size_t op = 0; op < c.program.ops.size(); ++op) oracle.run(op);
        }
        const DeviceValues values(gpu(), c.program, inputs);
        Plan plan = plan_on(gpu(), c.program, values, tune);
        plan.run(c.steps);
        const Arrays got = values.read();
        for (const ValueInfo& info : c.program.values) {
          if (info.role == Role::temp || info.role == Role::input) continue;
          const ValueId id = info.value.id;
          EXPECT_TRUE(within(got.doubles(id), oracle.values().doubles(id), oracle.error(id)))
              << info.name;
        }
      }
    }
  }
}

// A net with one of each layer, lowered as the engine does, on bytes with a pattern to learn.
class Net {
 public:
  Net(DType dtype, int64_t repeats, const nn::Optimizer& optimizer, double clip_norm)
      : model_(
            {std::make_shared<nn::LinearLayer>(33, true),
             std::make_shared<nn::ActivationLayer>(ActivationKind::tanh),
             std::make_shared<nn::DropoutLayer>(0.1), std::make_shared<nn::LinearLayer>(24, true),
             std::make_shared<nn::ActivationLayer>(ActivationKind::relu),
             std::make_shared<nn::LinearLayer>(kClasses, true)},
            {kFeatures}, dtype) {
    model_.initialise(5);
    nn::LowerOptions options;
    options.precision = dtype == DType::fp64 ? Precision::fp64 : Precision::fp32;
    options.batch = kBatch;
    options.repeats = repeats;
    options.set_samples = kSamples;
    options.order_samples = repeats * kBatch;
    options.classes = kClasses;
    options.scale = 1.0 / 255;
    options.optimizer = optimizer;
    options.clip_norm = clip_norm;
    options.seed = 8;
    lowered_ = nn::lower(model_, options);
  }

  const Program& program() const { return lowered_.program; }
  const nn::Lowered& lowered() const { return lowered_; }

  Arrays inputs(double lr) const {
    Arrays arrays(program());
    const Philox random{3, streams::kSample};
    for (const ValueInfo& info : program().values) {
      if (info.role == Role::state || info.role == Role::input) {
        std::memset(arrays[info.value].data, 0, arrays[info.value].bytes());
      }
    }
    for (int64_t r = 0; r < kSamples; ++r) {
      for (int64_t j = 0; j < kFeatures; ++j) {
        const bool bright = j % kClasses == r % kClasses;
        arrays[lowered_.inputs].as<uint8_t>()[r * kFeatures + j] =
            uint8_t((bright ? 128 : 0) + random.below(120, uint64_t(r * kFeatures + j)));
      }
      arrays[lowered_.targets].as<int32_t>()[r] = int32_t(r % kClasses);
    }
    const Tensor& order = arrays[lowered_.order];
    for (int64_t i = 0; i < order.numel(); ++i) order.as<int32_t>()[i] = int32_t(i * 7 % kSamples);
    const Tensor& rates = arrays[lowered_.lr];
    for (int64_t i = 0; i < rates.numel(); ++i) rates.as<double>()[i] = lr;
    for (size_t i = 0; i < lowered_.params.size(); ++i) {
      const Tensor& from = model_.params()[i].value.view();
      std::memcpy(arrays[lowered_.params[i]].data, from.data, from.bytes());
    }
    return arrays;
  }

 private:
  static constexpr int64_t kFeatures = 30, kClasses = 5, kSamples = 61, kBatch = 16;
  nn::Model model_;
  nn::Lowered lowered_;
};

constexpr int64_t kSteps = 70;  // more than one graph's worth

nn::Optimizer adam() {
  nn::Optimizer optimizer;
  optimizer.kind = nn::OptimizerKind::adam;
  return optimizer;
}
nn::Optimizer momentum() {
  nn::Optimizer optimizer;
  optimizer.momentum = 0.9;
  return optimizer;
}

TEST_F(CudaTraining, ManyStepsInOneLaunchAreSingleSteps) {
  for (const double clip_norm : {0.0, 0.5}) {
    const Net net(DType::fp32, kSteps, adam(), clip_norm);
    const Arrays inputs = net.inputs(1e-2);
    const DeviceValues at_once(gpu(), net.program(), inputs), singly(gpu(), net.program(), inputs);
    Plan many = plan_on(gpu(), net.program(), at_once, false);
    Plan single = plan_on(gpu(), net.program(), singly, false);
    many.run(kSteps);
    for (int64_t i = 0; i < kSteps; ++i) single.run(1);
    expect_same_bits(net.program(), at_once.read(), singly.read());
  }
}

TEST_F(CudaTraining, IsTheSameToTheBitEveryTime) {
  const Net net(DType::fp32, kSteps, momentum(), 0.5);
  const Arrays inputs = net.inputs(0.05);
  const DeviceValues first(gpu(), net.program(), inputs);
  Plan plan = plan_on(gpu(), net.program(), first, true);
  plan.run(kSteps);
  for (int again = 0; again < 3; ++again) {
    const DeviceValues values(gpu(), net.program(), inputs);
    Plan same(gpu(), net.program(), plan.choices(), values.externals());
    same.run(kSteps);
    expect_same_bits(net.program(), first.read(), values.read());
  }
}

// In fp64 the GPU and the CPU differ only in the order of sums: 1e-16 per sum, which 70 contracting
// steps do not raise above 1e-10. In fp32 the same holds with 6e-8 and 1e-4.
TEST_F(CudaTraining, LearnsWhatTheCpuLearns) {
  for (const auto& [dtype, bound] : {std::pair{DType::fp64, 1e-10}, std::pair{DType::fp32, 1e-4}}) {
    for (const auto& [optimizer, lr] : {std::pair{adam(), 0.01}, std::pair{momentum(), 0.03}}) {
      const Net net(dtype, kSteps, optimizer, 0.5);
      const Arrays inputs = net.inputs(lr);
      const DeviceValues values(gpu(), net.program(), inputs);
      Plan plan = plan_on(gpu(), net.program(), values, true);
      plan.run(kSteps);
      const auto got = values.read().doubles(net.lowered().loss.id);

      Arrays cpu = inputs.widened();
      Reference reference;
      for (int64_t i = 0; i < kSteps; ++i) {
        reference.run(net.program(), 0, net.program().ops.size(), cpu);
      }
      const auto want = cpu.doubles(net.lowered().loss.id);
      EXPECT_LT(want.back(), 0.5 * want.front()) << "the CPU did not learn";
      for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], bound * want[0]) << i;
    }
  }
}

}  // namespace
}  // namespace ridgeline::test
