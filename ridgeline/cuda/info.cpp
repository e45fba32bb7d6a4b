#include "ridgeline/cuda/info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ridgeline/cuda/error.h"
#include "ridgeline/cuda/probe.h"

namespace ridgeline::cuda {
namespace {

std::string version_text(int version) {  // 13000 -> "13.0"
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// sm_90 has architecture-specific features ("a"), which only that architecture runs.
std::string architecture_text(int arch) {
  return fmt::format("sm_{}{}", arch, arch == 90 ? "a" : "");
}

// Machine code runs on its own architecture and on later ones of the same generation. Otherwise the
// kernels may still be present as PTX, which only loading one can tell.
std::string refuse(int index, int major, int minor) {
  for (const int built : compiled_architectures()) {
    const bool exact = built == 10 * major + minor;
    if (exact || (built != 90 && built / 10 == major && built % 10 <= minor)) return {};
  }
  int before = 0;
  cudaGetDevice(&before);
  const cudaError_t error =
      cudaSetDevice(index) == cudaSuccess ? probe_kernels() : cudaErrorUnknown;
  cudaSetDevice(before);
  cudaGetLastError();
  if (error == cudaSuccess) return {};
  return fmt::format(
      "this build has kernels for {}, not for sm_{}{}; configure with -D "
      "CMAKE_CUDA_ARCHITECTURES={}{}",
      built_architectures(), major, minor, major, minor);
}

int attribute(cudaDeviceAttr what, int index) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, what, index) != cudaSuccess) cudaGetLastError();
  return value;
}

GpuInfo gpu_info(int index) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), fmt::format("cuda:{}", index));
  GpuInfo gpu;
  gpu.index = index;
  gpu.name = properties.name;
  gpu.major = properties.major;
  gpu.minor = properties.minor;
  gpu.sms = properties.multiProcessorCount;
  gpu.memory = properties.totalGlobalMem;
  gpu.l2 = size_t(std::max(0, properties.l2CacheSize));
  // Clock in kHz, two transfers per cycle, bus width in bits.
  gpu.memory_peak = 2e3 * attribute(cudaDevAttrMemoryClockRate, index) *
                    attribute(cudaDevAttrGlobalMemoryBusWidth, index) / 8;
  gpu.refusal = refuse(index, gpu.major, gpu.minor);
  return gpu;
}

}  // namespace

GpuReport gpu_report() {
  GpuReport report;
  int driver = 0, runtime = 0, count = 0;
  check(cudaRuntimeGetVersion(&runtime), "the CUDA runtime");
  report.runtime = version_text(runtime);
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (driver == 0) {
    cudaGetLastError();
    report.refusal = "no NVIDIA driver on this machine; use --device cpu";
    return report;
  }
  report.driver = version_text(driver);
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) cudaGetLastError();
  if (error == cudaErrorInsufficientDriver) {
    report.refusal = fmt::format(
        "the NVIDIA driver supports CUDA {}, this build needs {}; update "
        "the driver or use --device cpu",
        report.driver, report.runtime);
  } else if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    report.refusal =
        "the driver sees no NVIDIA GPU (is CUDA_VISIBLE_DEVICES set?); use --device cpu";
  } else if (error != cudaSuccess) {
    report.refusal =
        fmt::format("the NVIDIA driver reports {}; use --device cpu", cudaGetErrorString(error));
  } else {
    for (int i = 0; i < count; ++i) report.gpus.push_back(gpu_info(i));
  }
  return report;
}

std::string built_architectures() {
  std::vector<std::string> names;
  for (const int arch : compiled_architectures()) names.push_back(architecture_text(arch));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string describe(const GpuInfo& gpu) {
  const double gib = double(gpu.memory) / double(size_t{1} << 30);
  std::string text =
      fmt::format("cuda:{}  {}, sm_{}{}, {} multiprocessors, {:.1f} GiB, {} MiB L2", gpu.index,
                  gpu.name, gpu.major, gpu.minor, gpu.sms, gib, gpu.l2 >> 20);
  if (!gpu.refusal.empty()) text += "; not usable: " + gpu.refusal;
  return text;
}

}  // namespace ridgeline::cuda
