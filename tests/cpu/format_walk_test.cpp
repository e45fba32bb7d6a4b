// Kernels that pass values on in formats of their own (blocks of channels, rows of channels): each
// is tested by itself, with padding poisoned before it is written, and together with its
// neighbours.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ridgeline/registry.h"
#include "tests/support/conv_cases.h"
#include "tests/support/pairs.h"

namespace ridgeline::test {
namespace {

std::vector<Case> net_cases(DType dtype) {
  std::vector<Case> all = image_net_cases(dtype);
  all.push_back(signal_net_case(dtype));
  return all;
}

TEST(FormatWalk, KernelsOfNetworksAgreeWithTheOracle) {
  const auto runtime = make_runtime(Device{}, 2);
  const KernelTable table = all_kernels();
  Exercised exercised;
  for (const Case& c : net_cases(DType::fp32)) {
    if (wanted(c)) walk(c, table, *runtime, exercised);
  }
}

// A new kernel with a format of its own needs a case in which another kernel reads what it writes,
// and one in which another kernel writes what it reads.
TEST(FormatWalk, KernelsAgreeWithTheOracleOnWhatOtherKernelsGiveThem) {
  const auto runtime = make_runtime(Device{}, 2);
  const KernelTable table = all_kernels();
  Handed handed, all;
  for (const DType dtype : kFloats) {
    for (const auto& cases : {net_cases, recurrent_cases}) {
      for (const Case& c : cases(dtype)) {
        if (wanted(c)) walk_pairs(c, table, *runtime, handed);
      }
    }
    for (const auto& cases : {all_cases, small_signal_cases, long_conv_cases, net_cases}) {
      for (const Case& c : cases(dtype)) find_formatted(c, table, *runtime, all);
    }
  }
  if (!all_wanted()) return;
  EXPECT_FALSE(all.given_by.empty());
  for (const std::string& kernel : all.given_by) {
    EXPECT_TRUE(handed.given_by.contains(kernel))
        << kernel << ": no case has a kernel that takes its format";
  }
  for (const std::string& kernel : all.taken_by) {
    EXPECT_TRUE(handed.taken_by.contains(kernel))
        << kernel << ": no case has a kernel that gives its format";
  }
}

// Two layers may interpret the same values as images with different channels (a pool over signals,
// then one over images): no conversion may take the blocks of one for those of the other.
TEST(FormatWalk, BlocksOfDifferentImagesAreNotConvertedIntoEachOther) {
  bool found = false;
  for (const Kernel& kernel : all_kernels()) {
    if (kernel.name != "cpu.reorder.onednn" && kernel.name != "cpu.reorder.blocks") continue;
    found = true;
    const bool any =
        kernel.name == "cpu.reorder.onednn";  // the other takes blocks and plain images
    const Value value{.id = 0, .dtype = DType::fp32, .shape = {4, 18}};
    for (const char* tag : {"nChw16c", "nChw8c", "nhwc"}) {
      const Format one = fmt::format("onednn:{}:6x3", tag),
                   other = fmt::format("onednn:{}:1x18", tag);
      EXPECT_FALSE(kernel.converts(value, one, other)) << tag;
      EXPECT_FALSE(kernel.converts(value, other, one)) << tag;
      const bool takes = any || std::string_view(tag) != "nhwc";
      EXPECT_EQ(kernel.converts(value, one, "onednn:nChw16c:6x3"), any) << tag;
      EXPECT_EQ(kernel.converts(value, one, ""), takes) << tag;
      EXPECT_EQ(kernel.converts(value, "", other), takes) << tag;
    }
  }
  if (!found) GTEST_SKIP() << "built without oneDNN";
}

// A kernel for relu on [kRows, kLive], and its conversions, in a format that pads each row to
// kWide.
constexpr int64_t kRows = 2, kLive = 3, kWide = 4;

struct Faults {
  bool conversion_leaves = false;  // the conversion does not write the padding
  bool kernel_leaves = false;      // nor does the kernel
  bool kernel_changes = false;     // the kernel writes into what it reads
  bool kernel_reads = false;       // the kernel lets padding reach an element
};

Kernel padded_conversion(const Format& format, const Faults& faults) {
  Kernel kernel;
  kernel.name = "cpu.pad.fake";
  kernel.converts = [=](const Value&, const Format& from, const Format& to) {
    return (from.empty() && to == format) || (from == format && to.empty());
  };
  kernel.prepare = [=](const Span&, const Binding& binding) {
    const bool pads = binding.from().empty();
    const auto* from = binding.read(binding.converted()).as<const float>();
    auto* to = binding.write(binding.converted()).as<float>();
    return make_step([=] {
      for (int64_t r = 0; r < kRows; ++r) {
        std::memcpy(to + r * (pads ? kWide : kLive), from + r * (pads ? kLive : kWide),
                    kLive * sizeof(float));
        if (pads && !faults.conversion_leaves) to[r * kWide + kLive] = 0;
      }
    });
  };
  return kernel;
}

Kernel padded_relu(const Format& format, const Faults& faults) {
  Kernel kernel;
  kernel.name = "cpu.relu.fake";
  kernel.covers = [=](const RemainingOps& rest) {
    const auto* op = rest.get<Activation>(0);
    if (op == nullptr) return Cover::no("no activation");
    Cover cover = Cover::of(1);
    cover.reads = {{op->x.id, format, kRows * kWide * sizeof(float)}};
    cover.writes = {{op->y.id, format, kRows * kWide * sizeof(float)}};
    return cover;
  };
  kernel.prepare = [=](const Span& span, const Binding& binding) {
    const auto& op = span.get<Activation>(0);
    auto* x = binding.read(op.x).as<float>();
    auto* y = binding.write(op.y).as<float>();
    return make_step([=] {
      for (int64_t r = 0; r < kRows; ++r) {
        float *from = x + r * kWide, *to = y + r * kWide;
        for (int64_t c = 0; c < kLive; ++c) to[c] = std::fmax(from[c], 0.0f);
        if (faults.kernel_reads) to[0] += 0 * from[kLive];
        if (!faults.kernel_leaves) to[kLive] = 0;
        if (faults.kernel_changes) from[kLive] = 1;
      }
    });
  };
  return kernel;
}

testing::AssertionResult padded_relu_agrees(const Format& format, const Faults& faults) {
  CaseBuilder c("padded relu", DType::fp32);
  c.add(Activation{ActivationKind::relu, c.in("x", {kRows, kLive}), c.out("y", {kRows, kLive})});
  const Case one = c.done();
  const KernelTable table{padded_conversion(format, faults), padded_relu(format, faults)};
  const auto runtime = make_runtime(Device{}, 1);
  const Cover cover = table[1].covers({one.program, 0, *runtime});
  return agrees(table[1], cover, one.program, 0, one.inputs(), *runtime, table);
}

TEST(FormatWalk, SeesKernelsThatBreakTheContractOfPadding) {
  EXPECT_TRUE(padded_relu_agrees("padded", {}));
  EXPECT_FALSE(padded_relu_agrees("padded", {.conversion_leaves = true}));
  EXPECT_FALSE(padded_relu_agrees("padded", {.kernel_leaves = true}));
  EXPECT_FALSE(padded_relu_agrees("padded", {.kernel_changes = true}));
  EXPECT_TRUE(padded_relu_agrees("padded", {.kernel_reads = true}));  // it is zero

  EXPECT_TRUE(padded_relu_agrees("~padded", {.conversion_leaves = true, .kernel_leaves = true}));
  EXPECT_FALSE(padded_relu_agrees("~padded", {.kernel_changes = true}));
  EXPECT_FALSE(padded_relu_agrees("~padded", {.kernel_reads = true}));
}

}  // namespace
}  // namespace ridgeline::test
