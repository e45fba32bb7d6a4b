#include "ridgeline/cuda/runtime.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "ridgeline/core/order_maker.h"
#include "ridgeline/cuda/libraries/cublaslt.h"
#include "ridgeline/cuda/plain/update.h"
#include "tests/cuda/gpu.h"

namespace ridgeline::test {
namespace {

// Runs everywhere: on a machine without a usable GPU it prints one line, and nothing crashes.
TEST(Gpus, AreListedOrReportedAsMissing) {
  const cuda::GpuReport report = cuda::gpu_report();
  EXPECT_FALSE(report.runtime.empty());
  EXPECT_FALSE(cuda::built_architectures().empty());
  EXPECT_EQ(report.refusal.empty(), !report.gpus.empty());
  for (const cuda::GpuInfo& gpu : report.gpus) {
    EXPECT_NE(describe(gpu).find(gpu.name), std::string::npos);
    EXPECT_GT(gpu.memory, 0u);
  }
}

TEST(Gpus, AMissingGpuIsADeviceError) {
  try {
    cuda::CudaRuntime runtime(97);
    FAIL() << "cuda:97 was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_NE(std::string(error.what()).find("cuda:97"), std::string::npos) << error.what();
  }
}

class CudaRuntimeTest : public GpuTest {};

TEST_F(CudaRuntimeTest, MemoryIsZeroedAndComesBackAsItWent) {
  for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{70'000}, size_t{5'000'001}}) {
    const DeviceBuffer buffer(gpu(), bytes);
    std::vector<uint8_t> host(bytes, 7);
    gpu().download(host.data(), buffer.data(), bytes);
    EXPECT_EQ(std::accumulate(host.begin(), host.end(), size_t{0}), 0u) << bytes;
    for (size_t i = 0; i < bytes; ++i) host[i] = uint8_t(i * 31 + i / 256);
    gpu().upload(buffer.data(), host.data(), bytes);
    std::vector<uint8_t> back(bytes, 0);
    gpu().download(back.data(), buffer.data(), bytes);
    EXPECT_EQ(back, host);
    gpu().clear(buffer.data(), bytes);
    gpu().download(back.data(), buffer.data(), bytes);
    EXPECT_EQ(std::accumulate(back.begin(), back.end(), size_t{0}), 0u) << bytes;
  }
}

// A large set is shuffled on the device that trains, and a resumed run may continue on another
// device.
TEST_F(CudaRuntimeTest, TheOrderOfAnEpochIsThatOfTheHost) {
  for (const uint32_t n : {1u, 2u, 1000u, 300007u}) {
    const Feistel network(n, Philox{5, streams::kShuffle + 3});
    const DeviceBuffer order(gpu(), n * sizeof(int32_t));
    const auto uploader = gpu().make_uploader(order.size());
    auto* const maker = dynamic_cast<OrderMaker*>(uploader.get());
    ASSERT_NE(maker, nullptr);
    maker->make_order(network, reinterpret_cast<int32_t*>(order.data()));
    std::vector<int32_t> made(n);
    gpu().download(made.data(), order.data(), order.size());
    for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(uint32_t(made[i]), network(i)) << n;
  }
}

TEST_F(CudaRuntimeTest, OutOfMemorySaysWantedAndFreeAndLeavesTheDeviceUsable) {
  try {
    gpu().allocate(size_t{1} << 50);
    FAIL() << "a petabyte was there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    const std::string text = error.what();
    EXPECT_NE(text.find("wanted 1125899906842624 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("free"), std::string::npos) << text;
  }
  const DeviceBuffer buffer(gpu(), 16);
  gpu().synchronize();
}

int32_t counter(Runtime& runtime, const DeviceBuffer& buffer) {
  int32_t value = -1;
  runtime.download(&value, buffer.data(), sizeof(value));
  return value;
}

TEST_F(CudaRuntimeTest, CapturedStepsRunAsOftenAsAskedFor) {
  const DeviceBuffer buffer(gpu(), sizeof(int32_t));
  auto* tick = reinterpret_cast<int32_t*>(buffer.data());
  const auto step = [&] { cuda::launch_tick(tick, gpu().stream()); };
  for (const int64_t count : {1, 2, 31, 32, 33, 64, 100}) {
    const auto launch = gpu().capture(step, count);
    EXPECT_EQ(counter(gpu(), buffer), 0) << "capturing must not run";
    launch();
    launch();
    EXPECT_EQ(counter(gpu(), buffer), 2 * count);
    gpu().clear(buffer.data(), sizeof(int32_t));
  }
}

TEST_F(CudaRuntimeTest, TimesCallsAndLaunchesOfGraphs) {
  const DeviceBuffer buffer(gpu(), sizeof(int32_t)), large(gpu(), size_t{1} << 28);
  auto* tick = reinterpret_cast<int32_t*>(buffer.data());
  const auto step = [&] { cuda::launch_tick(tick, gpu().stream()); };
  const double one = gpu().time(step, 0.01);
  EXPECT_GT(one, 1e-8);
  EXPECT_LT(one, 1e-4);
  // A graph inside a timed call: its steps are captured instead of its launch.
  const auto ten = gpu().capture(step, 10);
  const double many = gpu().time(ten, 0.01);
  EXPECT_GT(many, 4 * one);
  EXPECT_LT(many, 40 * one);
  const double fill = gpu().time([&] { gpu().clear(large.data(), large.size()); }, 0.01);
  EXPECT_GT(fill, one);
}

TEST_F(CudaRuntimeTest, CallsThatNoGraphHoldsAreTimedToo) {
  const DeviceBuffer buffer(gpu(), sizeof(int32_t));
  int32_t host = 0;
  const double seconds =
      gpu().time([&] { gpu().download(&host, buffer.data(), sizeof(host)); }, 0.01);
  EXPECT_GT(seconds, 0);
  EXPECT_EQ(counter(gpu(), buffer), 0);  // the stream still works
}

TEST_F(CudaRuntimeTest, FingerprintNamesWhatTimesDependOn) {
  const std::string text = gpu().fingerprint();
  for (const char* part : {"cuda; ", "sm_", "driver ", "runtime ", "cuBLASLt "}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace ridgeline::test
