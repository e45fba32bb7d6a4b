#pragma once

// Compares the whole-step kernels with the steps of mlp_train_steps.h, and with themselves.

#include <ctime>

#include "bench/gpu/mlp_train_net.h"
#include "bench/gpu/mlp_train_steps.h"

namespace ridgeline::cuda {

// The weights after some steps, and the results of each step.
struct Trail {
  Weights weights;
  std::vector<float> loss;
  std::vector<int32_t> correct;

  bool operator==(const Trail& other) const {
    return weights.w == other.weights.w && weights.b == other.weights.b && loss == other.loss &&
           correct == other.correct;
  }
};

// Makes all steps of a problem, `a_launch` at a time. Each launch starts from the weights of the
// previous one, with leftovers in the workspace. `seen` is called with the trail after each launch.
template <typename Seen>
Trail run_launches(const Problem& problem, const MlpTrainLayout& layout, int a_launch,
                   const Seen& seen) {
  const int batch = problem.shape.batch;
  OnDevice<char> workspace(layout.workspace_bytes);
  Net net(problem.shape, problem.start, problem.data, std::vector<double>(size_t(a_launch)),
          problem.first);
  net.args.weight_decay = problem.decay;
  Trail trail;
  for (auto rate = problem.rates.begin(); rate != problem.rates.end(); rate += a_launch) {
    workspace.poison();
    net.first.set({problem.first + (rate - problem.rates.begin()) * batch});
    net.lr.set({rate, rate + a_launch});
    launch(net, layout, workspace);
    CHECK_CUDA(cudaDeviceSynchronize());
    for (const float v : net.loss.get()) trail.loss.push_back(v);
    for (const int32_t v : net.correct.get()) trail.correct.push_back(v);
    trail.weights = net.read();
    seen(trail);
  }
  return trail;
}

// Makes one step per launch and compares each value with its bound; then makes two launches of half
// the steps each, which must give the same bits. A whole run has no sharp bound of its own: one
// different rounding is carried on, and an fp32 loop on the host deviates more than any run of
// these kernels did.
inline bool check(const Problem& problem, const MlpTrainLayout& layout) {
  const MlpTrainShape& shape = problem.shape;
  if (!layout.refusal.empty()) {
    std::printf("  refused %-13s %-40s %s\n", name(layout.how), describe(shape).c_str(),
                layout.refusal.c_str());
    return true;
  }
  StepCheck all;
  Weights before = problem.start;
  const Trail single = run_launches(problem, layout, 1, [&](const Trail& now) {
    const size_t step = now.loss.size() - 1;
    all.join(check_step(problem, before, now.weights, now.loss[step], now.correct[step], step));
    before = now.weights;
  });
  const Trail halves =
      run_launches(problem, layout, int(problem.rates.size()) / 2, [](const Trail&) {});
  const bool same = single == halves, ok = all.passes(shape) && same;
  std::printf(
      "  %s %-13s %3d blocks %-40s %lld values: %lld rounded otherwise, drift %.1e; %lld outside, "
      "bounds to %.1e of the largest change",
      ok ? "ok     " : "FAILED ", name(layout.how), layout.blocks, describe(shape).c_str(),
      static_cast<long long>(all.values), static_cast<long long>(all.moved), all.worst_drift(),
      static_cast<long long>(all.outside), all.widest);
  if (all.outside > 0) {
    std::printf("; beyond by %.2e in %s %d%s", all.beyond, all.bias ? "bias" : "weight", all.layer,
                all.loss ? ", loss or hits too" : "");
  }
  std::printf("%s\n", same ? "" : "; LAUNCHES OF SEVERAL STEPS DIFFER FROM SINGLE ONES");
  std::fflush(stdout);
  return ok;
}

// `brief`: small and short, to run under compute-sanitizer.
inline std::vector<MlpTrainShape> check_shapes(bool brief) {
  using A = ActivationFn;
  if (brief) {
    return {shape_of({784, 37, 61, 10}, 13), shape_of({20, 16, 5}, 1),
            shape_of({30, 17, 33, 19, 40, 7}, 29, A::tanh), shape_of({33, 600, 16, 5}, 32)};
  }
  return {shape_of({784, 37, 61, 10}, 13),
          shape_of({20, 16, 5}, 1),
          shape_of({30, 17, 33, 19, 40, 7}, 29, A::tanh),
          shape_of({784, 128, 128, 128, 10}, 32),
          shape_of({50, 90, 128, 77, 16}, 31, A::tanh),
          shape_of({50, 33, 64, 9, 16}, 31),
          shape_of({200, 121, 96, 10}, 32, A::sigmoid),
          shape_of({784, 256, 10}, 32, A::sigmoid),
          shape_of({50, 300, 200, 300, 33}, 32),
          shape_of({784, 512, 512, 512, 10}, 32),
          shape_of({784, 1024, 1024, 1024, 10}, 32),
          shape_of({100, 150, 80, 10}, 64),
          shape_of({100, 1100, 1100, 10}, 20),
          shape_of({100, 17, 1000, 40, 10}, 32),
          shape_of({33, 1024, 16, 5}, 32, A::tanh),
          shape_of({40, 1000, 900, 24, 10}, 32)};
}

// Runs kernels whose names contain `only`; `seed` is that of the first, and 0 takes one from the
// clock.
inline int run_checks(bool brief, const std::string& only, unsigned seed) {
  if (seed == 0) seed = unsigned(std::time(nullptr));
  std::printf("seed %u\n", seed);
  bool ok = true;
  for (MlpTrainShape shape : check_shapes(brief)) {
    for (const bool masters : {false, true}) {
      for (const auto half : {DType::fp16, DType::bf16}) {
        if (brief && half != DType::fp16) continue;
        shape.masters = masters, shape.half = half;
        const int steps = brief || shape.sizes[1] > 500 ? 4 : 8;
        for (const auto layout_of : kLayouts) {
          const MlpTrainLayout layout = layout_of(shape, 0);
          if (std::string(name(layout.how)).find(only) == std::string::npos) continue;
          ok &= check(make_problem(shape, steps, masters ? 0.01 : 0.0, seed += 7), layout);
        }
      }
    }
  }
  std::printf(ok ? "all checks passed\n" : "SOME CHECKS FAILED\n");
  return ok ? 0 : 1;
}

}  // namespace ridgeline::cuda
