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
  double memory_peak = 0;  // bytes a second by clock and bus width; 0 when the driver does not say
  std::string refusal;     // why this build cannot use it; empty when it can
};

// What there is to say about GPUs. Nothing of CUDA is touched before the first call.
struct GpuReport {
  std::vector<GpuInfo> gpus;
  std::string refusal;  // why there is none: no driver, an old one, none plugged in; else empty
  std::string driver;   // the CUDA version the driver supports, "13.0"; "" without a driver
  std::string runtime;  // the one this build was made with
};

GpuReport gpu_report();

// "sm_90a, sm_80": what the kernels were compiled for.
std::string built_architectures();

// "cuda:0  NVIDIA H200, sm_90, 132 multiprocessors, 139.8 GiB, 50 MiB L2": for people
std::string describe(const GpuInfo& gpu);

}  // namespace ridgeline::cuda
