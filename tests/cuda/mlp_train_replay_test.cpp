// The bounds that mlp_train_bench applies to the whole-step kernels accept sums in fp32, and detect
// one sample, one input or one output left out of one layer. Needs no GPU.
#include <gtest/gtest.h>

#include "bench/gpu/mlp_train_steps.h"

namespace ridgeline::cuda {
namespace {

struct Net {
  std::vector<int> sizes;
  int batch;
  ActivationFn activation;
};

MlpTrainShape shape_of(const Net& net, bool masters, DType half) {
  MlpTrainShape shape;
  shape.layers = int(net.sizes.size()) - 1;
  std::copy(net.sizes.begin(), net.sizes.end(), shape.sizes);
  shape.batch = net.batch;
  shape.activation = net.activation;
  shape.masters = masters;
  shape.half = half;
  return shape;
}

// Makes all steps of a problem with sums in fp32 and a fault, each step from the weights of the
// previous one, as mlp_train_bench does with those of a kernel.
StepCheck check_replay(const Problem& problem, const Fault& fault) {
  StepCheck all;
  Problem step = problem;
  for (size_t t = 0; t < problem.rates.size(); ++t) {
    step.first = problem.first + int64_t(t) * problem.shape.batch;
    step.rates = {problem.rates[t]};
    const Outcome got = replay<float>(step, fault);
    // No rounding decides whether a unit is active.
    if (problem.shape.activation == ActivationFn::relu) {
      EXPECT_GT(got.least_gate, 0.1);
    }
    all.join(check_step(step, step.start, got.weights, got.loss[0], got.correct[0], 0));
    step.start = got.weights;
  }
  return all;
}

TEST(MlpTrainReplay, StepsHaveBoundsThatOneTermBreaks) {
  using A = ActivationFn;
  const Net nets[] = {{{784, 37, 61, 10}, 13, A::relu}, {{50, 33, 64, 9, 16}, 31, A::relu},
                      {{60, 512, 300, 10}, 9, A::relu}, {{30, 17, 33, 19, 40, 7}, 29, A::tanh},
                      {{200, 96, 10}, 32, A::sigmoid},  {{100, 150, 80, 10}, 64, A::relu},
                      {{33, 1024, 16, 5}, 32, A::tanh}};
  for (const Net& net : nets) {
    for (const bool masters : {false, true}) {
      for (const auto half : {DType::fp16, DType::bf16}) {
        const MlpTrainShape shape = shape_of(net, masters, half);
        const Problem problem = make_problem(shape, 3, masters ? 0.01 : 0.0, 17);
        SCOPED_TRACE(testing::Message()
                     << net.sizes[0] << "-" << net.sizes[1] << (masters ? " masters " : " ")
                     << (half == DType::fp16 ? "fp16" : "bf16"));
        const StepCheck sound = check_replay(problem, {});
        EXPECT_TRUE(sound.passes(shape)) << sound.outside << " outside, " << sound.worst_drift();
        for (const auto kind : {Fault::Kind::sample, Fault::Kind::input, Fault::Kind::output}) {
          for (int l = kind == Fault::Kind::output ? 1 : 0; l < shape.layers; ++l) {
            const StepCheck off = check_replay(problem, {kind, l});
            EXPECT_FALSE(off.passes(shape))
                << "fault " << int(kind) << " in layer " << l << ": " << off.worst_drift();
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline::cuda
