#include <gtest/gtest.h>

#include <filesystem>

#include "ridgeline/cuda/kernels.h"
#include "ridgeline/prof/gpu_ceilings.h"
#include "tests/cuda/gpu.h"

namespace ridgeline::test {
namespace {

class CudaCeilings : public GpuTest {};

TEST_F(CudaCeilings, AreSaneAndKept) {
  const KernelTable kernels = cuda::kernels();
  const auto file = std::filesystem::path(testing::TempDir()) / "ridgeline-ceilings" / "cuda.json";
  std::filesystem::remove(file);
  const prof::Ceilings measured = prof::gpu_ceilings_of(gpu(), kernels, file);
  // Bounds for any GPU from sm_75 on in the next years: fp64 is a 64th of fp32 on some.
  EXPECT_GT(measured.fp32_flops, 5e11);
  EXPECT_LT(measured.fp32_flops, 1e15);
  EXPECT_GT(measured.tf32_flops, 0.9 * measured.fp32_flops);
  EXPECT_GT(measured.fp64_flops, 1e10);
  EXPECT_GT(measured.memory_bandwidth(), 1e11);
  EXPECT_LT(measured.memory_bandwidth(), 1e14);
  EXPECT_GE(measured.bandwidth(1e6), measured.memory_bandwidth());
  EXPECT_GT(measured.launch_seconds, 1e-7);
  EXPECT_LT(measured.launch_seconds, 1e-4);
  EXPECT_GT(measured.host_bandwidth, 1e9);
  EXPECT_GT(gpu().host_copy_rate(true), 1e9);
  EXPECT_GT(gpu().host_copy_rate(false), 1e9);
  EXPECT_EQ(measured.threads, 0);
  // The second time nothing is measured, so the figures are identical.
  const prof::Ceilings kept = prof::gpu_ceilings_of(gpu(), kernels, file);
  EXPECT_EQ(kept.fp32_flops, measured.fp32_flops);
  EXPECT_EQ(kept.tf32_flops, measured.tf32_flops);
  std::filesystem::remove_all(file.parent_path());
}

TEST_F(CudaCeilings, CopiesCopy) {
  std::vector<uint8_t> bytes(1000), back(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i * 7 % 251);
  const DeviceBuffer from(gpu(), bytes.size()), to(gpu(), bytes.size());
  gpu().upload(from.data(), bytes.data(), bytes.size());
  gpu().copy(to.data(), from.data(), bytes.size());
  gpu().download(back.data(), to.data(), back.size());
  EXPECT_EQ(back, bytes);
}

}  // namespace
}  // namespace ridgeline::test
