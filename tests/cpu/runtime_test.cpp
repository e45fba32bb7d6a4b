#include "ridgeline/cpu/runtime.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "ridgeline/registry.h"

namespace ridgeline {
namespace {

TEST(CpuRuntime, MemoryIsAlignedZeroedAndReadableALineFurther) {
  cpu::CpuRuntime runtime(1);
  for (const size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{1000}, size_t{100'000},
                             size_t{2} << 20, size_t{5'000'000}}) {
    const DeviceBuffer buffer(runtime, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    int sum = 0;  // the address sanitizer detects a read outside
    for (size_t i = 0; i < bytes + 64; ++i) sum += int(buffer.data()[i]);
    EXPECT_EQ(sum, 0);
  }
}

TEST(CpuRuntime, TooLargeAWishNamesWantedAndFreeBytes) {
  cpu::CpuRuntime runtime(1);
  try {
    runtime.allocate(size_t{1} << 50);
    FAIL() << "a pebibyte was granted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_NE(std::string(error.what()).find("wanted 1125899906842624 bytes"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("free"), std::string::npos);
  }
}

TEST(CpuRuntime, CopiesBothWays) {
  cpu::CpuRuntime runtime(1);
  const DeviceBuffer buffer(runtime, 6);
  char back[6] = {};
  runtime.upload(buffer.data(), "ridge", 6);
  runtime.download(back, buffer.data(), 6);
  EXPECT_STREQ(back, "ridge");
}

TEST(CpuRuntime, FingerprintTellsThreadCountsApart) {
  const cpu::CpuRuntime one(1), two(2);
  EXPECT_NE(one.fingerprint(), two.fingerprint());
  EXPECT_EQ(one.fingerprint(), cpu::CpuRuntime(1).fingerprint());
  EXPECT_NE(two.fingerprint().find("2 threads"), std::string::npos);
}

TEST(CpuRuntime, TimesACallAndKeepsToTheBudget) {
  using namespace std::chrono;
  cpu::CpuRuntime runtime(1);
  const auto start = steady_clock::now();
  int calls = 0;
  const double seconds = runtime.time(
      [&] {
        ++calls;
        std::this_thread::sleep_for(milliseconds(2));
      },
      0.05);
  const double taken = duration<double>(steady_clock::now() - start).count();
  EXPECT_GE(seconds, 0.002);
  EXPECT_LE(seconds, taken);
  EXPECT_GE(calls, 4);
  EXPECT_LE(calls, 27);
}

TEST(CpuRuntime, TimesEvenACallLongerThanTheBudget) {
  cpu::CpuRuntime runtime(1);
  int calls = 0;
  runtime.time([&] { ++calls; }, 0.0);
  EXPECT_EQ(calls, 2);  // a call of ten times the budget is timed a second time, without a median
  calls = 0;
  runtime.time([&] { ++calls; }, 1e-3);
  EXPECT_GE(calls, 4);  // one to warm up, three for a median
}

TEST(Registry, TheCpuIsAlwaysThere) {
  ASSERT_FALSE(devices().empty());
  EXPECT_EQ(devices().front(), Device{});
  EXPECT_EQ(make_runtime(Device{}, 1)->device(), Device{});
}

TEST(Registry, AMissingDeviceIsAnErrorOfItsKind) {
  try {
    make_runtime({DeviceKind::cuda, 4095}, 1);
    FAIL() << "there is no such device";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_NE(std::string(error.what()).find("cuda:4095"), std::string::npos);
  }
}

}  // namespace
}  // namespace ridgeline
