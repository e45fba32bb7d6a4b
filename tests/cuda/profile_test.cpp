#include "ridgeline/cuda/profile.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ridgeline/engine/profile/profile.h"
#include "tests/cuda/gpu.h"
#include "tests/engine/small_set.h"

namespace ridgeline::test {
namespace {

class CudaProfile : public GpuTest {};

TEST_F(CudaProfile, LongerWorkTakesLonger) {
  cuda::CudaRuntime& runtime = gpu();
  constexpr size_t kSmall = 1 << 20, kLarge = 256 << 20;
  const DeviceBuffer from(runtime, kLarge), to(runtime, kLarge);
  const auto copy = [&](size_t i) {
    runtime.copy(to.data(), from.data(), i % 2 == 0 ? kSmall : kLarge);
  };
  runtime.time_each(4, copy);
  const auto seconds = runtime.time_each(4, copy);
  ASSERT_EQ(seconds.size(), 4u);
  for (const double each : seconds) EXPECT_GT(each, 0);
  EXPECT_GT(seconds[1], 5 * seconds[0]);
  EXPECT_GT(seconds[3], 5 * seconds[2]);
}

TEST_F(CudaProfile, TracerSeesKernelsCopiesAndCalls) {
  std::string why_not;
  const auto tracer = cuda::make_tracer(why_not);
  if (!tracer) GTEST_SKIP() << why_not;
  cuda::CudaRuntime& runtime = gpu();
  const DeviceBuffer from(runtime, 1 << 20), to(runtime, 1 << 20);
  tracer->take();
  const std::vector<std::byte> host(1000);
  runtime.upload(from.data(), host.data(), host.size());
  runtime.copy(to.data(), from.data(), 1 << 20);
  const DeviceTrace trace = tracer->take();
  ASSERT_EQ(trace.launches.size(), 1u);
  const LaunchRecord& kernel = trace.launches.front();
  EXPECT_NE(kernel.name.find("copy"), std::string::npos) << kernel.name;
  EXPECT_EQ(kernel.name.find('('), std::string::npos) << kernel.name;
  EXPECT_GT(kernel.end, kernel.begin);
  EXPECT_GT(kernel.grid[0] * kernel.block[0], 0);
  EXPECT_GT(kernel.registers, 0);
  EXPECT_GT(kernel.occupancy, 0);
  EXPECT_LE(kernel.occupancy, 1);
  EXPECT_TRUE(std::any_of(trace.copies.begin(), trace.copies.end(), [](const CopyRecord& copy) {
    return copy.bytes == 1000 && std::string(copy.kind) == "to the GPU";
  }));
  EXPECT_TRUE(std::any_of(trace.calls.begin(), trace.calls.end(), [](const ApiRecord& call) {
    return call.name == "cudaLaunchKernel" || call.name == "cudaLaunchKernelExC";
  }));
  tracer->pause(true);
  runtime.copy(to.data(), from.data(), 1 << 20);
  runtime.synchronize();
  tracer->pause(false);
  EXPECT_TRUE(tracer->take().launches.empty());
  std::string busy;
  EXPECT_EQ(cuda::make_tracer(busy), nullptr);  // one at a time
  EXPECT_FALSE(busy.empty());
}

TEST_F(CudaProfile, OfATrainingStep) {
  const engine::testing::TempFolder folder;
  engine::ProfileOptions options;
  options.set = engine::testing::small_set();
  options.seconds = 0.5;
  const engine::Profile profile = engine::profile_training(
      engine::testing::small_config({"run.device=\"cuda\""}), "small.toml", options);
  ASSERT_FALSE(profile.kernels.empty());
  for (const engine::KernelProfile& kernel : profile.kernels) {
    EXPECT_GT(kernel.seconds.median, 0) << kernel.name;
    if (profile.no_device_trace.empty()) {
      EXPECT_FALSE(kernel.launches.empty()) << kernel.name;
    }
  }
  EXPECT_GT(profile.total.median, 0);
}

}  // namespace
}  // namespace ridgeline::test
