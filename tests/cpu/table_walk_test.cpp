// Compares every kernel of the table with the oracle, wherever it covers ops of a case.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/cpu/custom.h"
#include "ridgeline/cpu/simd/split_kernels.h"
#include "ridgeline/registry.h"
#include "tests/support/conv_cases.h"
#include "tests/support/nans.h"

namespace ridgeline::test {
namespace {

// Runs with one thread, with two, and with more threads than the batch has samples.
class TableWalk : public testing::TestWithParam<int> {};

TEST_P(TableWalk, EveryCpuKernelAgreesWithTheOracle) {
  const auto runtime = make_runtime(Device{}, GetParam());
  const KernelTable table = all_kernels();
  Exercised in_any;
  for (const Precision precision :
       {Precision::fp64, Precision::fp32, Precision::bf16, Precision::fp16}) {
    const DType dtype = storage(precision);
    Exercised exercised;
    for (const Case& c : all_cases(dtype)) walk(c, table, *runtime, exercised);
    for (const Case& c : small_signal_cases(dtype)) walk(c, table, *runtime, exercised);
    for (const Case& c : long_conv_cases(dtype)) walk(c, table, *runtime, exercised);
    if (!is_half(precision)) {
      for (const Case& c : tall_training_cases(dtype)) walk(c, table, *runtime, exercised);
      for (const Case& c : normed_training_cases(dtype)) walk(c, table, *runtime, exercised);
      for (const Case& c : long_recurrent_cases(dtype)) walk(c, table, *runtime, exercised);
      for (const Case& c : image_net_cases(dtype)) {  // of several layers that a kernel may fuse
        if (c.name.starts_with("residual") || c.name.starts_with("strided")) {
          walk(c, table, *runtime, exercised);
        }
      }
    }
    for (const Kernel& kernel : cpu::custom_kernels()) ++exercised[kernel.name];  // custom_test.cpp
    // Some kernels need several threads, and others several samples per thread.
    if (GetParam() == 2) expect_exercised(table, precision, *runtime, exercised);
    for (const auto& [name, times] : exercised) in_any[name] += times;
  }
  if (!all_wanted()) return;
  for (const Kernel& kernel : table) {
    if (kernel.target != DeviceKind::cpu || kernel.converts) continue;
    EXPECT_GT(in_any[kernel.name], 0) << kernel.name << ": no case exercises this kernel";
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, TableWalk, testing::Values(1, 2, 5));

// Kernels that read the weights when they are prepared.
class InferenceKernels : public testing::TestWithParam<int> {};

TEST_P(InferenceKernels, AgreeWithTheOracle) {
  const auto runtime = make_runtime(Device{}, GetParam());
  KernelTable table = inference_kernels();
  for (const Kernel& kernel : all_kernels()) {  // conversions to the formats that they read
    if (!kernel.covers) table.push_back(kernel);
  }
  Exercised exercised;
  for (const Case& c : inference_cases()) walk(c, table, *runtime, exercised);
  for (const Case& c : conv_inference_cases()) walk(c, table, *runtime, exercised);
  for (const Case& c : all_cases(DType::fp32)) walk(c, table, *runtime, exercised);
  if (GetParam() == 1) ++exercised["cpu.net_infer.threads"];  // it needs several threads
  expect_exercised(table, Precision::fp32, *runtime, exercised);
}

INSTANTIATE_TEST_SUITE_P(Threads, InferenceKernels, testing::Values(1, 2, 5));

// A whole net is one kernel but for the copy of its result.
TEST(ConvNetKernel, CoversWholeNets) {
  const auto runtime = make_runtime(Device{}, 2);
  for (const Case& c : conv_inference_cases()) {
    size_t most = 0;
    for (const Kernel& kernel : inference_kernels()) {
      if (kernel.name != "cpu.conv_net.nhwc") continue;
      most = offer(kernel, {c.program, 0, *runtime}).ops;
    }
    EXPECT_EQ(most, c.program.ops.size() - 1) << c.name;
  }
}

TEST(InferenceTable, CoversWholeNets) {
  const auto runtime = make_runtime(Device{}, 1);
  for (const Case& c : inference_cases()) {
    size_t most = 0;
    for (const Kernel& kernel : inference_kernels()) {
      most = std::max(most, offer(kernel, {c.program, 0, *runtime}).ops);
    }
    EXPECT_EQ(most, c.program.ops.size()) << c.name;
  }
}

// A stretch is found once, at its first op, so that planning does not walk it again at each op.
TEST(InferenceTable, LooksAtEachOpAFewTimes) {
  const auto runtime = make_runtime(Device{}, 1);
  std::vector<Case> cases = inference_cases();
  for (Case& c : conv_inference_cases()) cases.push_back(std::move(c));
  for (const Case& c : cases) {
    for (const Kernel& kernel : inference_kernels()) {
      size_t looks = 0;
      for (size_t op = 0; op < c.program.ops.size(); ++op) {
        offer(kernel, {c.program, op, *runtime, &looks});
      }
      EXPECT_LE(looks, 4 * c.program.ops.size()) << kernel.name << " on " << c.name;
    }
  }
}

TEST(MlpKernels, AWholeStepMayUseAdamDropoutNormsFloatsAndOtherLosses) {
  const auto runtime = make_runtime(Device{}, 2);
  std::vector<Case> cases = training_cases(DType::fp32);
  for (Case& c : tall_training_cases(DType::fp32)) cases.push_back(std::move(c));
  for (Case& c : normed_training_cases(DType::fp32)) cases.push_back(std::move(c));
  int taken = 0;
  for (const Case& c : cases) {
    const auto is = [&](const char* what) { return c.name.find(what) != std::string::npos; };
    const bool extra = is("adam") || is("dropout") || is("floats") || is("mse") || is("huber") ||
                       is("entropy") || is("quantiles") || is("norm") || is("clipped");
    if (is("summed") || !extra) continue;
    for (const Kernel& kernel : all_kernels()) {
      if (kernel.name != "cpu.mlp_train.simd") continue;
      ++taken;
      const Cover cover = kernel.covers({c.program, 0, *runtime});
      EXPECT_EQ(cover.ops, c.program.ops.size()) << c.name << ": " << cover.reason;
    }
  }
  EXPECT_GE(taken, 27);
}

// A CPU without AMX has no AMX kernels in its table, so they are also tested with the portable
// implementation of their products, together with only the conversions they need.
void walk_split_kernels(const cpu::simd::SplitEngine& engine) {
  SCOPED_TRACE(engine.name);
  const auto runtime = make_runtime(Device{}, 3);
  KernelTable table = all_kernels();
  std::erase_if(table, [&](const Kernel& kernel) { return bool(kernel.covers); });
  const KernelTable kernels = cpu::simd::split_kernels(engine);
  table.insert(table.end(), kernels.begin(), kernels.end());
  Exercised exercised;
  for (const Case& c : recurrent_cases(DType::fp32)) walk(c, table, *runtime, exercised);
  for (const Case& c : recurrent_op_cases(DType::fp32)) walk(c, table, *runtime, exercised);
  for (const Case& c : wide_recurrent_cases(DType::fp32)) walk(c, table, *runtime, exercised);
  for (const Case& c : training_cases(DType::fp32)) walk(c, table, *runtime, exercised);
  for (const Case& c : tall_training_cases(DType::fp32)) walk(c, table, *runtime, exercised);
  for (const Kernel& kernel : kernels) {
    EXPECT_GT(exercised[kernel.name], 0) << kernel.name << ": no case exercises this kernel";
  }
}

TEST(SplitKernels, AgreeWithTheOracleByThePortableEngine) {
  walk_split_kernels(cpu::simd::split_portable_engine());
}

TEST(SplitKernels, AgreeWithTheOracleByThisMachinesEngine) {
  if (const auto* engine = cpu::simd::split_engine()) return walk_split_kernels(*engine);
  for (const Kernel& kernel : all_kernels())
    EXPECT_FALSE(kernel.name.ends_with(".amx")) << kernel.name;
}

// A NaN in an input passes through layers, relu and pools, except through oneDNN's relu, which
// turns it into zero, and its max pool.
class NansComeThrough : public testing::Test {
 protected:
  NansComeThrough() {
    std::erase_if(table_, [](const Kernel& kernel) {
      const auto is = [&](const char* what) { return kernel.name.find(what) != std::string::npos; };
      return is("activation.onednn") || is("max_pool.onednn") || is("rnn.onednn");
    });
  }
  void walk_cases(const std::function<std::vector<Case>(DType)>& cases) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      for (const Case& c : cases(dtype)) expect_nans(c, table_, *runtime_, exercised_);
    }
  }
  void expect_kernels(std::initializer_list<const char*> kernels) {
    for (const char* kernel : kernels) {
      EXPECT_GT(exercised_[kernel], 0) << kernel << ": no case exercises this kernel";
    }
  }

 private:
  std::unique_ptr<Runtime> runtime_ = make_runtime(Device{}, 2);
  KernelTable table_ = all_kernels();
  Exercised exercised_;
};

TEST_F(NansComeThrough, OfSignals) {
  walk_cases(small_signal_cases);
  expect_kernels({"cpu.conv1d.winograd1d", "cpu.norm_relu_pool.simd", "cpu.conv1d.bf16",
                  "cpu.norm_relu_pool.bf16"});
}
TEST_F(NansComeThrough, OfLayers) {
  walk_cases(layer_cases);
  expect_kernels({"cpu.linear.reference", "cpu.rnn.reference", "cpu.rnn.simd"});
}

TEST_F(NansComeThrough, OfImages) {
  walk_cases(conv_cases);
  expect_kernels({"cpu.conv2d.onednn.blocked", "cpu.conv2d_grad_x.onednn.blocked",
                  "cpu.conv2d_grad_w.onednn.blocked", "cpu.avg_pool.onednn.blocked",
                  "cpu.batch_norm.onednn.blocked", "cpu.layer_norm.onednn",
                  "cpu.max_pool.reference"});
}

TEST(KernelTable, NamesAreUniqueAndSayTheirTarget) {
  std::set<std::string> names;
  KernelTable table = all_kernels();
  for (const Kernel& kernel : inference_kernels()) table.push_back(kernel);
  for (const Kernel& kernel : table) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name << " is there twice";
    EXPECT_TRUE(kernel.name.starts_with(kernel.target == DeviceKind::cpu ? "cpu." : "cuda."));
  }
}

TEST(KernelTable, EveryOpHasAReferenceKernelInEveryFloatType) {
  const auto runtime = make_runtime(Device{}, 1);
  const KernelTable table = all_kernels();
  for (const DType dtype : kFloats) {
    std::set<size_t> kinds;
    for (const Case& c : op_cases(dtype)) {
      for (size_t at = 0; at < c.program.ops.size(); ++at) {
        const Op& op = c.program.ops[at];
        kinds.insert(op.index());
        const std::string want = std::string("cpu.") + name(op) + ".reference";
        bool covered = false;
        for (const Kernel& kernel : table) {
          covered |= kernel.name == want && kernel.covers({c.program, at, *runtime}).ops == 1;
        }
        EXPECT_TRUE(covered) << want << " does not cover " << c.name;
      }
    }
    constexpr size_t kOutside = 2;  // layers from outside the library have no reference
    EXPECT_EQ(kinds.size() + kOutside, std::variant_size_v<AnyOp>) << "an op without a case";
  }
}

TEST(KernelTable, ReferencesComeLast) {
  bool reference = false;
  for (const Kernel& kernel : all_kernels()) {
    if (kernel.target != DeviceKind::cpu) continue;
    EXPECT_FALSE(reference && !kernel.name.ends_with(".reference")) << kernel.name;
    reference = kernel.name.ends_with(".reference");
  }
  EXPECT_TRUE(reference);
}

}  // namespace
}  // namespace ridgeline::test
