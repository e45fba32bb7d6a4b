#include "ridgeline/registry.h"

#include <chrono>

#include "ridgeline/core/buffer.h"
#include "ridgeline/core/host_memory.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/kernels.h"
#include "ridgeline/cpu/runtime.h"
#if defined(RIDGELINE_HAVE_CUDA) && __has_include("ridgeline/cuda/kernels.h")
#include "ridgeline/cuda/info.h"
#include "ridgeline/cuda/kernels.h"
#include "ridgeline/cuda/profile.h"
#include "ridgeline/cuda/runtime.h"
#include "ridgeline/cuda/uploader.h"
#define RIDGELINE_USE_CUDA 1
#endif

namespace ridgeline {
namespace {

#ifndef RIDGELINE_USE_CUDA
constexpr const char* kNotBuilt =
    "this build has no GPU support; configure with -D RIDGELINE_CUDA=ON or use --device cpu";
#endif

// For a device that computes in the host's own memory.
class HostUploader final : public Uploader {
 public:
  HostUploader(Runtime& runtime, size_t bytes) : runtime_(runtime), block_(bytes) {}
  std::span<std::byte> block() override { return {block_.data(), block_.size()}; }
  void send() override {}
  void place(void* device) override { runtime_.upload(device, block_.data(), block_.size()); }

 private:
  Runtime& runtime_;
  Buffer block_;
};

}  // namespace

GpuSupport gpu_support() {
  GpuSupport support;
#ifdef RIDGELINE_USE_CUDA
  const cuda::GpuReport report = cuda::gpu_report();
  support.architectures = cuda::built_architectures();
  support.refusal = report.refusal;
  support.expected = !report.driver.empty();
  bool usable = false;
  for (const cuda::GpuInfo& gpu : report.gpus) {
    support.gpus.push_back(cuda::describe(gpu));
    usable |= gpu.refusal.empty();
    if (support.refusal.empty()) support.refusal = gpu.name + ": " + gpu.refusal;
  }
  if (usable) support.refusal.clear();
#else
  support.refusal = kNotBuilt;
#endif
  return support;
}

std::vector<Device> devices() {
  std::vector<Device> all{Device{}};
#ifdef RIDGELINE_USE_CUDA
  for (const int index : cuda::usable_gpus()) all.push_back({DeviceKind::cuda, index});
#endif
  return all;
}

std::unique_ptr<Runtime> make_runtime(Device device, int threads) {
  switch (device.kind) {
    case DeviceKind::cpu:
      return std::make_unique<cpu::CpuRuntime>(resolve_threads(threads));
    case DeviceKind::cuda:
#ifdef RIDGELINE_USE_CUDA
      return cuda::make_runtime(device.index);
#else
      throw_error(ErrorKind::device, "{}: {}", to_string(device), kNotBuilt);
#endif
  }
  throw_error(ErrorKind::device, "{}: no such device", to_string(device));
}

ThreadPool* pool_of(Runtime& runtime) {
  return runtime.device().kind == DeviceKind::cpu ? &cpu::cpu_runtime(runtime).pool() : nullptr;
}

size_t free_memory(const Runtime& runtime) {
#ifdef RIDGELINE_USE_CUDA
  if (runtime.device().kind == DeviceKind::cuda) return cuda::free_memory(runtime.device().index);
#endif
  return runtime.device().kind == DeviceKind::cpu ? free_host_memory() : 0;
}

std::unique_ptr<Uploader> make_uploader(Runtime& runtime, size_t bytes) {
#ifdef RIDGELINE_USE_CUDA
  if (runtime.device().kind == DeviceKind::cuda) {
    return cuda::make_uploader(cuda::cuda_runtime(runtime), bytes);
  }
#endif
  return std::make_unique<HostUploader>(runtime, bytes);
}

void copy_on_gpu(Runtime& runtime, void* to, const void* from, size_t bytes) {
#ifdef RIDGELINE_USE_CUDA
  if (runtime.device().kind == DeviceKind::cuda) {
    return cuda::cuda_runtime(runtime).copy(to, from, bytes);
  }
#endif
  throw_error(ErrorKind::device, "{}: no GPU to copy {} bytes on ({} to {})",
              to_string(runtime.device()), bytes, from, to);
}

double pinned_copy_rate(Runtime& runtime, [[maybe_unused]] bool to_gpu) {
#ifdef RIDGELINE_USE_CUDA
  if (runtime.device().kind == DeviceKind::cuda) {
    return cuda::pinned_copy_rate(cuda::cuda_runtime(runtime), to_gpu);
  }
#endif
  throw_error(ErrorKind::device, "{}: no GPU to copy to", to_string(runtime.device()));
}

void connect_ranks([[maybe_unused]] Runtime& runtime) {
#ifdef RIDGELINE_USE_CUDA
  if (runtime.device().kind == DeviceKind::cuda) cuda::cuda_runtime(runtime).connect_ranks();
#endif
}

std::vector<double> time_each(Runtime& runtime, size_t count,
                              const std::function<void(size_t)>& call) {
#ifdef RIDGELINE_USE_CUDA
  if (runtime.device().kind == DeviceKind::cuda) return cuda::time_each(runtime, count, call);
#endif
  using Clock = std::chrono::steady_clock;
  runtime.synchronize();
  std::vector<double> seconds(count);
  auto begin = Clock::now();
  for (size_t i = 0; i < count; ++i) {
    call(i);
    const auto end = Clock::now();
    seconds[i] = std::chrono::duration<double>(end - begin).count();
    begin = end;
  }
  return seconds;
}

std::unique_ptr<DeviceTracer> trace_gpus(std::string& why_not) {
#ifdef RIDGELINE_USE_CUDA
  return cuda::make_tracer(why_not);
#else
  why_not = kNotBuilt;
  return nullptr;
#endif
}

KernelTable all_kernels() {
  KernelTable table = cpu::kernels();
#ifdef RIDGELINE_USE_CUDA
  for (Kernel& kernel : cuda::kernels()) table.push_back(std::move(kernel));
#endif
  return table;
}

KernelTable inference_kernels() { return cpu::inference_kernels(); }

KernelTable peer_kernels() {
#ifdef RIDGELINE_USE_CUDA
  return cuda::peer_kernels();
#else
  return {};
#endif
}

}  // namespace ridgeline
