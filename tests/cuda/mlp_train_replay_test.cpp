// The bounds that mlp_train_bench holds the whole-step kernels to let sums in fp32 pass, and catch
// one sample, one input or one output left out of one layer. Needs no GPU.
#include <gtest/gtest.h>

#include "bench/gpu/mlp_train_steps.h"

namespace ridgeline::cuda {
namespace {

struct Net {
  std::vector<int> sizes;
  int batch;
  MlpActivation activation;
};

MlpTrainShape shape_of(const Net& net, bool masters, MlpHalf half) {
  MlpTrainShape shape;
  shape.layers = int(net.sizes.size()) - 1;
  std::copy(net.sizes.begin(), net.sizes.end(), shape.sizes);
  shape.batch = net.batch;
  shape.activation = net.activation;
  shape.masters = masters;
  shape.half = half;
  return shape;
}

void expect_sharp(const Problem& problem) {
  const MlpTrainShape& shape = problem.shape;
  const Outcome want = replay<double>(problem);
  const Distance sound = distance(problem, replay<float>(problem), want);
  EXPECT_TRUE(within(shape, sound))
      << sound.change << " of " << change_bound(shape) << ", loss " << sound.loss;
  // No rounding decides whether a unit is open.
  if (shape.activation == MlpActivation::relu) {
    EXPECT_GT(want.least_gate, 0.1);
  }
  for (const auto kind : {Fault::Kind::sample, Fault::Kind::input, Fault::Kind::output}) {
    for (int l = kind == Fault::Kind::output ? 1 : 0; l < shape.layers; ++l) {
      const Distance off = distance(problem, replay<float>(problem, {kind, l}), want);
      EXPECT_FALSE(within(shape, off)) << "fault " << int(kind) << " in layer " << l << ": "
                                       << off.change << " of " << change_bound(shape);
    }
  }
}

TEST(MlpTrainReplay, BoundsLetSoundKernelsPassAndCatchOneTerm) {
  using A = MlpActivation;
  const Net nets[] = {{{784, 37, 61, 10}, 13, A::relu},     {{30, 17, 33, 19, 40, 7}, 29, A::tanh},
                      {{784, 64, 64, 64, 10}, 32, A::relu}, {{200, 96, 10}, 32, A::sigmoid},
                      {{100, 150, 80, 10}, 64, A::relu},    {{60, 512, 300, 10}, 9, A::relu},
                      {{60, 1024, 130, 10}, 7, A::relu}};
  for (const Net& net : nets) {
    for (const bool masters : {false, true}) {
      for (const auto half : {MlpHalf::fp16, MlpHalf::bf16}) {
        SCOPED_TRACE(testing::Message()
                     << net.sizes[0] << "-" << net.sizes[1] << "... batch " << net.batch
                     << (masters ? " masters" : "") << (half == MlpHalf::fp16 ? " fp16" : " bf16"));
        expect_sharp(make_problem(shape_of(net, masters, half), 4, masters ? 0.01 : 0.0, 17));
      }
    }
  }
}

// Sums in fp32 stay within the bounds of a step, and one term left out does not.
TEST(MlpTrainReplay, StepsHaveBoundsThatOneTermBreaks) {
  using A = MlpActivation;
  const Net nets[] = {{{784, 37, 61, 10}, 13, A::relu}, {{50, 33, 64, 9, 16}, 31, A::relu}};
  for (const Net& net : nets) {
    for (const bool masters : {false, true}) {
      for (const auto half : {MlpHalf::fp16, MlpHalf::bf16}) {
        const Problem problem =
            make_problem(shape_of(net, masters, half), 1, masters ? 0.01 : 0.0, 17);
        const auto outside = [&](const Fault& fault) {
          const Outcome got = replay<float>(problem, fault);
          return check_step(problem, problem.start, got.weights, got.loss[0], 0).outside;
        };
        SCOPED_TRACE(testing::Message() << net.sizes[1] << (masters ? " masters " : " ")
                                        << (half == MlpHalf::fp16 ? "fp16" : "bf16"));
        EXPECT_EQ(outside({}), 0);
        for (const auto kind : {Fault::Kind::sample, Fault::Kind::input, Fault::Kind::output}) {
          for (int l = kind == Fault::Kind::output ? 1 : 0; l < problem.shape.layers; ++l) {
            EXPECT_GT(outside({kind, l}), 0) << "fault " << int(kind) << " in layer " << l;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline::cuda
