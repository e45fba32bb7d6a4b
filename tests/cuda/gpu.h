#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "ridgeline/cuda/info.h"
#include "ridgeline/cuda/runtime.h"

namespace ridgeline::test {

// Base class of tests that need a GPU; each is skipped if this build can use none.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<int> usable = cuda::usable_gpus();
    if (usable.empty()) {
      const cuda::GpuReport report = cuda::gpu_report();
      GTEST_SKIP() << (report.refusal.empty() ? report.gpus.front().refusal : report.refusal);
    }
    runtime_ = std::make_unique<cuda::CudaRuntime>(usable.front());
  }

  cuda::CudaRuntime& gpu() { return *runtime_; }

 private:
  std::unique_ptr<cuda::CudaRuntime> runtime_;
};

}  // namespace ridgeline::test
