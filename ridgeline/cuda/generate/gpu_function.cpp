#include "ridgeline/cuda/generate/gpu_function.h"

#include "ridgeline/cuda/error.h"

namespace ridgeline::cuda::generate {
namespace {

// The driver library is not linked: its functions are looked up when they are needed.
struct Driver {
  decltype(&cuModuleLoadData) load = nullptr;
  decltype(&cuModuleUnload) unload = nullptr;
  decltype(&cuModuleGetFunction) function = nullptr;
  decltype(&cuFuncSetAttribute) set = nullptr;
  decltype(&cuFuncGetAttribute) get = nullptr;
  decltype(&cuLaunchKernelEx) launch = nullptr;
  decltype(&cuGetErrorString) error = nullptr;
  decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor) occupancy = nullptr;

  Driver() {
    find(load, "cuModuleLoadData");
    find(unload, "cuModuleUnload");
    find(function, "cuModuleGetFunction");
    find(set, "cuFuncSetAttribute");
    find(get, "cuFuncGetAttribute");
    find(launch, "cuLaunchKernelEx");
    find(error, "cuGetErrorString");
    find(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  }
  template <typename F>
  static void find(F& function, const char* name) {
    void* at = nullptr;
    cudaDriverEntryPointQueryResult found{};
    cuda::check(cudaGetDriverEntryPointByVersion(name, &at, 12000, cudaEnableDefault, &found),
                name);
    if (found != cudaDriverEntryPointSuccess)
      throw_error(ErrorKind::device, "the driver has no {}", name);
    function = reinterpret_cast<F>(at);
  }
  void check(CUresult result, const char* what) const {
    if (result == CUDA_SUCCESS) [[likely]]
      return;
    const char* text = "unknown error";
    error(result, &text);
    throw_error(ErrorKind::device, "a generated kernel: {}: the GPU reports {}", what, text);
  }
};

const Driver& driver() {
  static const Driver only;
  return only;
}

constexpr unsigned kThreads = 256;

}  // namespace

GpuFunction::GpuFunction(const std::vector<char>& cubin, const Source& source)
    : blocks_(unsigned(source.blocks)),
      cluster_(unsigned(source.cluster)),
      shared_bytes_(unsigned(source.shared_bytes)) {
  const Driver& d = driver();
  check(cudaFree(nullptr), "the GPU's context");  // makes the context current
  d.check(d.load(&module_, cubin.data()), "its code");
  try {
    d.check(d.function(&function_, module_, kKernelName), kKernelName);
    d.check(d.set(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(shared_bytes_)),
            "shared memory");
    d.check(d.get(&registers_, CU_FUNC_ATTRIBUTE_NUM_REGS, function_), "registers");
    d.check(d.get(&local_bytes_, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function_), "registers");
    int each = 0;
    d.check(d.occupancy(&each, function_, int(kThreads), shared_bytes_), "occupancy");
    if (each < 1) throw_error(ErrorKind::device, "a generated kernel does not fit on an SM");
  } catch (...) {
    d.unload(module_);
    throw;
  }
}

GpuFunction::~GpuFunction() { driver().unload(module_); }

void GpuFunction::launch(const Args& args, cudaStream_t stream) const {
  CUlaunchAttribute attribute{};
  if (cluster_ > 0) {
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = cluster_;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
  } else {
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
  }
  CUlaunchConfig config{};
  config.gridDimX = blocks_, config.gridDimY = 1, config.gridDimZ = 1;
  config.blockDimX = kThreads, config.blockDimY = 1, config.blockDimZ = 1;
  config.sharedMemBytes = shared_bytes_;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  void* parameters[] = {const_cast<Args*>(&args)};
  driver().check(driver().launch(&config, function_, parameters, nullptr), "launch");
}

void GpuFunction::launch_other(const char* name, int blocks, const Args& args,
                               cudaStream_t stream) const {
  CUfunction function = nullptr;
  driver().check(driver().function(&function, module_, name), name);
  CUlaunchConfig config{};
  config.gridDimX = unsigned(blocks), config.gridDimY = 1, config.gridDimZ = 1;
  config.blockDimX = kThreads, config.blockDimY = 1, config.blockDimZ = 1;
  config.hStream = stream;
  void* parameters[] = {const_cast<Args*>(&args)};
  driver().check(driver().launch(&config, function, parameters, nullptr), name);
}

}  // namespace ridgeline::cuda::generate
