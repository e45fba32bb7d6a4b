// The bounds of tests/support/bounds.h accept a correct kernel and detect the smallest real faults:
// a missing term or sample, a wrong step's learning rate, a write past the end.
#include "tests/support/bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ridgeline/cpu/reference/kernels.h"
#include "ridgeline/registry.h"
#include "tests/support/compare.h"

namespace ridgeline::test {
namespace {

// Damages a value right after op `after` has run.
struct Spoiler {
  size_t after = 0;
  std::function<void(const Binding& binding)> spoil;
};

// A kernel that covers the whole program with the reference kernels, in the program's own dtypes.
Kernel whole_program_kernel(Spoiler spoiler) {
  Kernel kernel;
  kernel.name = "cpu.control.reference";
  kernel.covers = [](const RemainingOps& rest) {
    Cover cover = Cover::of(rest.size());
    for (size_t op = 0; op < rest.size(); ++op) {
      for (const Kernel& reference : cpu::reference_kernels()) {
        const Cover one = reference.covers({rest.program, rest.begin + op, rest.runtime});
        cover.workspace = std::max(cover.workspace, one.workspace);
      }
    }
    return cover;
  };
  kernel.prepare = [spoiler](const Span& span, const Binding& binding) -> std::unique_ptr<Step> {
    std::vector<std::shared_ptr<Step>> steps;
    for (size_t op = span.begin; op < span.end; ++op) {
      for (const Kernel& reference : cpu::reference_kernels()) {
        const RemainingOps rest{span.program, op, binding.runtime()};
        if (reference.covers(rest).ops == 0) continue;
        steps.push_back(reference.prepare({span.program, op, op + 1}, binding));
      }
      if (spoiler.spoil && op == spoiler.after) {
        steps.push_back(make_step([spoiler, &binding] { spoiler.spoil(binding); }));
      }
    }
    return make_step([steps] {
      for (const auto& step : steps) step->run();
    });
  };
  return kernel;
}

testing::AssertionResult check(const Case& c, const Spoiler& spoiler, int64_t steps = 1) {
  const auto runtime = make_runtime(Device{}, 1);
  const Kernel kernel = whole_program_kernel(spoiler);
  const Cover cover = kernel.covers({c.program, 0, *runtime});
  return agrees(kernel, cover, c.program, 0, c.inputs(), *runtime, {kernel}, steps);
}

Case find(const std::vector<Case>& cases, const std::string& start) {
  for (const Case& c : cases) {
    if (c.name.starts_with(start)) return c;
  }
  throw_error(ErrorKind::usage, "no case is named {}", start);
}

template <typename T>
size_t index_of(const Program& program, bool last = false) {
  size_t found = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (!std::holds_alternative<T>(program.ops[i])) continue;
    found = i;
    if (!last) break;
  }
  return found;
}

// value[i] += change(i), rounded to its dtype.
void add_to(const Tensor& tensor, const std::function<double(int64_t)>& change) {
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    set_element(tensor, i, get_element(tensor, i) + change(i));
  }
}

TEST(Bounds, AWholeStepInItsOwnTypePasses) {
  for (const DType dtype : kFloats) {
    for (const Case& c : all_cases(dtype)) {
      EXPECT_TRUE(check(c, {}, c.program.ops.size() > 5 ? c.steps : 1)) << c.name;
    }
  }
}

class Controls : public testing::TestWithParam<DType> {};

TEST_P(Controls, OneTermLeftOutOfAProductFails) {
  for (const char* name : {"linear 5x17->13", "linear 64x128->48", "linear 8x257->16"}) {
    const Case c = find(op_cases(GetParam()), name);
    const auto op = std::get<Linear>(c.program.ops[0]);
    EXPECT_TRUE(check(c, {})) << c.name;
    EXPECT_FALSE(check(c, {0,
                           [op](const Binding& binding) {
                             const Tensor x = binding.read(op.x), w = binding.read(op.w);
                             const int64_t in = op.in(), out = op.out();
                             add_to(binding.write(op.y), [&](int64_t i) {
                               return -get_element(x, i / out * in + in - 1) *
                                      get_element(w, i % out * in + in - 1);
                             });
                           }}))
        << c.name;
  }
}

TEST_P(Controls, OneSampleLeftOutOfAGradientFails) {
  for (const char* name : {"linear_grad_w 33x100->31", "linear_grad_w 128x40->33"}) {
    const Case c = find(op_cases(GetParam()), name);
    const auto op = std::get<LinearGradW>(c.program.ops[0]);
    EXPECT_FALSE(check(c, {0,
                           [op](const Binding& binding) {
                             const Tensor dy = binding.read(op.dy);
                             const int64_t out = op.out(), last = (op.n() - 1) * out;
                             add_to(binding.write(op.db),
                                    [&](int64_t o) { return -get_element(dy, last + o); });
                           }}))
        << c.name;
  }
}

TEST_P(Controls, OneClassLeftOutOfASoftmaxFails) {
  const Case c = find(op_cases(GetParam()), "softmax [32, 10] 0x2");
  const auto op = std::get<Softmax>(c.program.ops[0]);
  EXPECT_FALSE(check(c, {0, [op](const Binding& binding) {
                           const Tensor y = binding.write(op.y);
                           const int64_t classes = op.y.shape[1];
                           for (int64_t r = 0; r < op.y.shape[0]; ++r) {
                             const double left = 1 - get_element(y, r * classes + classes - 1);
                             for (int64_t k = 0; k < classes; ++k) {
                               const int64_t i = r * classes + k;
                               set_element(y, i, get_element(y, i) / left);
                             }
                           }
                         }}));
}

TEST_P(Controls, AWrongDropoutElementFails) {
  const Case c = find(op_cases(GetParam()), "dropout 0.1 [3, 37]");
  const auto op = std::get<Dropout>(c.program.ops[0]);
  EXPECT_FALSE(check(c, {0, [op](const Binding& binding) {
                           set_element(binding.write(op.y), 5, get_element(binding.read(op.x), 5));
                         }}));
}

TEST_P(Controls, AWriteOfNothingOrPastTheEndFails) {
  const Case c = find(op_cases(GetParam()), "relu [3, 37]");
  const auto op = std::get<Activation>(c.program.ops[0]);
  const auto past = check(c, {0, [op](const Binding& binding) {
                                const Tensor y = binding.write(op.y);
                                set_element(y, y.numel(), 1.0);
                              }});
  EXPECT_FALSE(past);
  EXPECT_NE(std::string(past.message()).find("past the end of y"), std::string::npos);
  EXPECT_FALSE(check(c, {0, [op](const Binding& binding) {
                           set_element(binding.write(op.y), 110, std::nan(""));
                         }}));
  EXPECT_FALSE(
      check(c, {0, [op](const Binding& binding) { set_element(binding.read(op.x), 0, 77.0); }}));
}

// In a whole training step, a fault in the lowest of four layers is still detected. In half types,
// where the bounds of so many ops are wide, the comparison with the rerun detects it.
TEST_P(Controls, OneSampleLeftOutOfAStepFails) {
  const Case c = find(training_cases(GetParam()), "train deep, even");
  const size_t at = index_of<LinearGradW>(c.program, true);
  const auto op = std::get<LinearGradW>(c.program.ops[at]);
  EXPECT_FALSE(check(c, {at, [op](const Binding& binding) {
                           const Tensor x = binding.read(op.x), dy = binding.read(op.dy);
                           const int64_t in = op.in(), out = op.out(), last = op.n() - 1;
                           add_to(binding.write(op.dw), [&](int64_t i) {
                             return -get_element(dy, last * out + i / in) *
                                    get_element(x, last * in + i % in);
                           });
                         }}));
}

INSTANTIATE_TEST_SUITE_P(Types, Controls, testing::ValuesIn(kFloats),
                         [](const auto& info) { return std::string(name(info.param)); });

class StepControls : public testing::TestWithParam<DType> {};

TEST_P(StepControls, TheNextStepsLearningRateFails) {
  const Case c = find(training_cases(GetParam()), "train relu");
  const size_t at = index_of<SgdUpdate>(c.program);
  const auto op = std::get<SgdUpdate>(c.program.ops[at]);
  EXPECT_FALSE(check(c, {at, [op](const Binding& binding) {
                           const double* lr = binding.read(op.lr).as<double>();
                           const Tensor dw = binding.read(op.dw);
                           const int32_t tick = *binding.read(op.tick).as<int32_t>();
                           add_to(binding.write(op.w), [&](int64_t i) {
                             return (lr[tick] - lr[tick - 1]) * get_element(dw, i);
                           });
                         }}));
}

// No bound is so wide that its test says nothing: in fp32, most elements of every value, after
// three layers forward and backward, are held to 0.4 % of its largest.
TEST_P(StepControls, BoundsAreNarrow) {
  for (const Case& c : all_cases(GetParam())) {
    SCOPED_TRACE(c.name);
    double narrow = 16 * std::sqrt(unit_roundoff(GetParam()));
    // Three roundings to bf16: of a summand, of the sum, and of the updated value.
    if (c.name.find("as bf16") != c.name.npos) narrow += 3 * 2 * unit_roundoff(DType::bf16);
    // One element has no variance: it is divided by the root of epsilon, and its error by 3e-3.
    for (const char* single : {"layer_norm 1x1x1", "group_norm 1x1x1x1"}) {
      if (c.name.starts_with(single)) narrow *= 20;
    }
    Bounds bounds(c.program, c.inputs().widened());
    for (size_t op = 0; op < c.program.ops.size(); ++op) bounds.run(op);
    for (const ValueInfo& info : c.program.values) {
      std::vector<double> errors = bounds.error(info.value.id);
      double largest = 0;
      for (const double value : bounds.values().doubles(info.value.id)) {
        if (!std::isnan(value)) largest = std::max(largest, std::abs(value));
      }
      std::ranges::nth_element(errors, errors.begin() + int64_t(errors.size() / 2));
      // A gradient of a softmax over one class is zero: its bound is measured against the
      // logits' 1.
      EXPECT_LE(errors[errors.size() / 2], narrow * std::max(largest, 1e-2)) << info.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, StepControls, testing::Values(DType::fp64, DType::fp32),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace ridgeline::test
