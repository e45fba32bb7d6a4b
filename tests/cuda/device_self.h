#pragma once

#include <cuda_runtime.h>

#include "ridgeline/core/device_sums.h"
#include "ridgeline/cuda/error.h"
#include "ridgeline/dist/self.h"

namespace ridgeline::test {

// A single rank whose messages, if it had any, could come from GPU memory.
class DeviceSelf final : public dist::SelfCommunicator, public DeviceSums {
 public:
  DeviceSelf() = default;
  explicit DeviceSelf(std::string refusal) : refusal_(std::move(refusal)) {}

  std::string device_refusal() const override { return refusal_; }
  // Runs on the default stream, which waits for no other: the caller must have waited.
  void all_reduce_device(const void* from, void* to, int64_t count, DType dtype) override {
    cuda::check(cudaMemcpy(to, from, size_t(count) * size_of(dtype), cudaMemcpyDeviceToDevice),
                "a sum of one rank");
    cuda::check(cudaDeviceSynchronize(), "a sum of one rank");
  }

 private:
  std::string refusal_;
};

}  // namespace ridgeline::test
