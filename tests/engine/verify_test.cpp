#include "ridgeline/engine/verify/verify.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "ridgeline/core/file.h"
#include "ridgeline/dist/self.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/nn/safetensors.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using testing::small_config;
using testing::small_set;
using testing::TempFolder;

VerifyOptions options_for(int64_t steps) {
  VerifyOptions options;
  options.set = small_set();
  options.steps = steps;
  return options;
}

TEST(Verify, TheReferenceAgreesInBothPrecisions) {
  const TempFolder folder;
  const Config config = small_config({"train.optimizer={type=\"sgd\",lr=0.05,momentum=0.9}"});
  const VerifyReport report = verify(config, options_for(13));
  EXPECT_TRUE(report.good()) << to_text(report);
  ASSERT_GE(report.comparisons.size(), 2u);
  EXPECT_EQ(report.comparisons[0].precision, Precision::fp64);
  EXPECT_EQ(report.comparisons[0].steps, 13);
  EXPECT_EQ(report.comparisons[0].losses.size(), 13u);
  for (const auto& tensor : report.comparisons[0].tensors) {
    EXPECT_LE(tensor.two_norm, 1e-14) << tensor.name;
  }
  EXPECT_THAT(to_text(report), HasSubstr("0.weight"));
  EXPECT_TRUE(nlohmann::json::parse(to_json_text(report))["good"].get<bool>());
}

// Adam divides gradients by their size, so elements whose gradient is only rounding deviate far:
// more than the bound, but no more than those of a control.
TEST(Verify, TheReferenceAgreesUnderAdam) {
  for (const int64_t steps : {1, 2, 13}) {
    const Config config = small_config({"train.optimizer={type=\"adam\",lr=0.002}"});
    const VerifyReport report = verify(config, options_for(steps));
    EXPECT_TRUE(report.good()) << to_text(report);
  }
}

// A run made elsewhere: the same config is the same run, and a batch with one more sample is not.
class VerifyElsewhere : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, VerifyElsewhere, ::testing::Values("sgd", "adam"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(VerifyElsewhere, OneMoreSampleInABatchFails) {
  const TempFolder folder;
  dist::SelfCommunicator alone;
  const Config config = small_config(
      {"train.clip_norm=0", fmt::format("train.optimizer={{type=\"{}\",lr=0.002}}", GetParam())});
  VerifyOptions options = options_for(5);
  options.ranks = &alone;
  for (const bool same : {true, false}) {
    Config elsewhere = config;
    if (!same) elsewhere.train.batch = config.train.batch + 1;
    write_part(elsewhere, options, folder / "part.safetensors");
    VerifyOptions compare = options;
    compare.part = folder / "part.safetensors";
    compare.part_ranks = 1;
    const VerifyReport report = verify(config, compare);
    EXPECT_EQ(report.good(), same) << to_text(report);
    EXPECT_EQ(report.comparisons.back().what, "1 ranks");
    EXPECT_EQ(report.comparisons.back().verdict, same ? Verdict::pass : Verdict::fail);
  }
}

Config conv_config() {
  return small_config(
      {"model.layers=[{type=\"conv2d\",out=4,kernel=3,padding=1},{type=\"batchnorm\"},"
       "{type=\"relu\"},{type=\"conv2d\",out=4,kernel=3},{type=\"batchnorm\"},{type=\"relu\"},"
       "{type=\"linear\",out=4}]",
       "train.optimizer={type=\"adam\",lr=0.002}"});
}

// A convolutional net sums its gradients and statistics over samples and pixels. In fp64, where
// fast kernels differ by little more than the order of these sums, the reference is within the
// bound for that many terms, and a batch with one more sample is not.
TEST(Verify, BoundsCountThePixelsOfSums) {
  const TempFolder folder;
  dist::SelfCommunicator alone;
  const Config config = conv_config();
  VerifyOptions options = options_for(3);
  options.ranks = &alone;
  options.precisions = {Precision::fp64};
  for (const bool same : {true, false}) {
    Config elsewhere = config;
    if (!same) elsewhere.train.batch = config.train.batch + 1;
    write_part(elsewhere, options, folder / "part.safetensors");
    VerifyOptions compare = options;
    compare.part = folder / "part.safetensors";
    compare.part_ranks = 1;
    const VerifyReport report = verify(config, compare);
    EXPECT_EQ(report.comparisons.front().what, "cpu reference kernels");
    EXPECT_NE(report.comparisons.front().verdict, Verdict::fail) << to_text(report);
    EXPECT_EQ(report.comparisons.back().verdict, same ? Verdict::pass : Verdict::fail);
  }
}

TEST(Verify, TheCpuStandsInWithWhatItHas) {
  for (const Precision both :
       {Precision::fp64, Precision::fp32, Precision::bf16, Precision::fp16}) {
    for (const bool others : {true, false}) {
      EXPECT_EQ(cpu_side(both, others).base, both);
      EXPECT_TRUE(cpu_side(both, others).reference_kernels);
    }
  }
  for (const Precision gpu : {Precision::tf32, Precision::fp32x3}) {
    const CpuSide side = cpu_side(gpu, true);
    EXPECT_EQ(side.base, Precision::fp32);
    EXPECT_FALSE(side.reference_kernels) << "they would be compared within bounds of " << name(gpu);
    EXPECT_EQ(storage(side.base), storage(gpu)) << "tensors are compared byte for byte in size";
    EXPECT_TRUE(has_precision(Device{}, side.base));
    EXPECT_THROW(cpu_side(gpu, false), Error);
  }
}

// A run as a GPU would make it: that of fp32 with its weights changed by `relative`, labelled tf32.
void write_tf32_part(const Config& config, const VerifyOptions& options, double relative,
                     const std::filesystem::path& file) {
  VerifyOptions fp32 = options;
  fp32.precisions = {Precision::fp32};
  write_part(config, fp32, file);
  const nn::TensorFile made = nn::TensorFile::read(file);
  std::vector<nn::TensorEntry> tensors(made.tensors().begin(), made.tensors().end());
  std::vector<std::vector<float>> kept;
  kept.reserve(tensors.size());
  for (nn::TensorEntry& tensor : tensors) {
    ASSERT_TRUE(tensor.name.starts_with("fp32/")) << tensor.name;
    tensor.name.replace(0, 4, "tf32");
    if (tensor.dtype != DType::fp32) continue;
    auto& to = kept.emplace_back(tensor.data.size() / sizeof(float));
    std::memcpy(to.data(), tensor.data.data(), tensor.data.size());
    for (size_t i = 0; i < to.size(); ++i) to[i] *= float(1 + (i % 2 == 0 ? relative : -relative));
    tensor.data = std::as_bytes(std::span(to));
  }
  write_file_atomic(file, nn::to_safetensors(tensors, {}));
}

TEST(Verify, Tf32IsHeldToItsOwnBoundsAgainstTheCpusFp32) {
  const TempFolder folder;
  dist::SelfCommunicator alone;
  const Config config = small_config({"train.optimizer={type=\"sgd\",lr=0.01}"});
  VerifyOptions options = options_for(5);
  options.ranks = &alone;
  options.precisions = {Precision::tf32};
  options.part_ranks = 2;
  for (const bool good : {true, false}) {
    // One rounding of tf32 is far beyond one of fp32; a hundred of them are not rounding any more.
    write_tf32_part(config, options, good ? 0x1p-11 : 100 * 0x1p-11, folder / "part.safetensors");
    VerifyOptions compare = options;
    compare.part = folder / "part.safetensors";
    const VerifyReport report = verify(config, compare);
    const Comparison& last = report.comparisons.back();
    EXPECT_EQ(last.what, "2 ranks");
    EXPECT_EQ(last.precision, Precision::tf32);
    EXPECT_EQ(last.base, Precision::fp32);
    EXPECT_EQ(last.verdict, good ? Verdict::pass : Verdict::fail) << to_text(report);
    EXPECT_THAT(to_text(report), HasSubstr("tf32 2 ranks, 5 steps, against fp32"));
    EXPECT_THAT(to_text(report), HasSubstr("left out: the CPU's reference kernels in tf32"));
    for (const Comparison& each : report.comparisons) EXPECT_NE(each.what, "cpu reference kernels");
  }
}

}  // namespace
}  // namespace ridgeline::engine
