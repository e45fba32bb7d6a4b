#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ridgeline::cuda {

// One GPU of this machine, whether this build can use it or not.
struct GpuInfo {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int sms = 0;               // streaming multiprocessors
  size_t memory = 0;         // bytes
  size_t l2 = 0;             // bytes
  // Bytes per second from clock and bus width; 0 if the driver does not say.
  double memory_peak = 0;
  std::string refusal;  // why this build cannot use it; empty if it can
};

// The GPUs of this machine. CUDA is not touched before the first call.
struct GpuReport {
  std::vector<GpuInfo> gpus;
  // Why there is no GPU (no driver, an old driver, no device); otherwise empty.
  std::string refusal;
  std::string driver;   // the CUDA version the driver supports, "13.0"; "" without a driver
  std::string runtime;  // the CUDA version this build was made with
};

GpuReport gpu_report();

// The architectures that the kernels were compiled for: "sm_90a, sm_80".
std::string built_architectures();

// For people to read: "cuda:0  NVIDIA H200, sm_90, 132 multiprocessors, 139.8 GiB, 50 MiB L2"
std::string describe(const GpuInfo& gpu);

}  // namespace ridgeline::cuda
