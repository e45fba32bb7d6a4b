#include "ridgeline/registry.h"

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/rows.h"
#include "ridgeline/cpu/runtime.h"
#if defined(RIDGELINE_HAVE_CUDA) && __has_include("ridgeline/cuda/rows.h")
#include "ridgeline/cuda/rows.h"
#include "ridgeline/cuda/runtime.h"
#define RIDGELINE_USE_CUDA 1
#endif

namespace ridgeline {

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
      throw_error(ErrorKind::device,
                  "{}: this build has no GPU support; configure with -D RIDGELINE_CUDA=ON or use "
                  "--device cpu",
                  to_string(device));
#endif
  }
  throw_error(ErrorKind::device, "{}: no such device", to_string(device));
}

Table all_rows() {
  Table table = cpu::rows();
#ifdef RIDGELINE_USE_CUDA
  for (Impl& row : cuda::rows()) table.push_back(std::move(row));
#endif
  return table;
}

}  // namespace ridgeline
