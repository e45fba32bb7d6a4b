// CUPTI's activity records as a DeviceTracer.
#include "ridgeline/cuda/profile.h"

#if __has_include(<cupti.h>)
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "ridgeline/core/shared_library.h"
#include "ridgeline/cuda/error.h"

namespace ridgeline::cuda {
namespace {

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
constexpr size_t kBufferBytes = size_t{4} << 20, kAlign = 8;

struct Api {
  decltype(&cuptiGetVersion) version = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next = nullptr;
  decltype(&cuptiGetCallbackName) callback_name = nullptr;
  decltype(&cuptiGetResultString) result_text = nullptr;
  decltype(&cuptiGetTimestamp) now = nullptr;
};

std::string fill(Api& api) {
  SharedLibrary library("libcupti.so.13", {"libcupti.so.13", "/usr/local/cuda/lib64/libcupti.so.13",
                                           "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13"});
  library.find(api.version, "cuptiGetVersion");
  library.find(api.callbacks, "cuptiActivityRegisterCallbacks");
  library.find(api.enable, "cuptiActivityEnable");
  library.find(api.disable, "cuptiActivityDisable");
  library.find(api.flush, "cuptiActivityFlushAll");
  library.find(api.next, "cuptiActivityGetNextRecord");
  library.find(api.callback_name, "cuptiGetCallbackName");
  library.find(api.result_text, "cuptiGetResultString");
  library.find(api.now, "cuptiGetTimestamp");
  return library.refusal();
}

// The share of an SM's threads that a launch can keep resident, by the limits of the architecture;
// registers are allocated to warps in units of 256.
void set_occupancy(LaunchRecord& kernel, const cudaDeviceProp& gpu) {
  const int threads = kernel.block[0] * kernel.block[1] * kernel.block[2];
  const int warps = (threads + 31) / 32;
  if (warps == 0 || gpu.maxThreadsPerMultiProcessor == 0) return;
  const auto limit_by = [&](const char* what, int64_t blocks, int64_t& least) {
    if (blocks < least) {
      least = blocks;
      kernel.occupied_by = what;
    }
  };
  int64_t blocks = INT64_MAX;
  limit_by("threads", gpu.maxThreadsPerMultiProcessor / (32 * warps), blocks);
  const int64_t registers = (int64_t(kernel.registers) * 32 + 255) / 256 * 256 * warps;
  if (registers > 0) limit_by("registers", gpu.regsPerMultiprocessor / registers, blocks);
  const int64_t shared = kernel.shared + int64_t(gpu.reservedSharedMemPerBlock);
  limit_by("shared memory", int64_t(gpu.sharedMemPerMultiprocessor) / std::max<int64_t>(1, shared),
           blocks);
  limit_by("blocks", gpu.maxBlocksPerMultiProcessor, blocks);
  kernel.occupancy = double(blocks * 32 * warps) / gpu.maxThreadsPerMultiProcessor;
}

// "void ns::kernel<float, 4>(float const*, int)" -> "ns::kernel<float, 4>"
std::string kernel_name(const char* mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 ? text : mangled;
  std::free(text);
  if (name.starts_with("void ")) name = name.substr(5);
  // The argument list is the last parenthesis that opens outside the template arguments.
  int depth = 0;
  for (size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')') ++depth;
    if (name[i] == '(' && --depth == 0) {
      name.resize(i);
      break;
    }
  }
  constexpr std::string_view kNoise = "ridgeline::cuda::";
  for (size_t at = name.find(kNoise); at != std::string::npos; at = name.find(kNoise)) {
    name.erase(at, kNoise.size());
  }
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (size_t at = name.find(kAnonymous); at != std::string::npos; at = name.find(kAnonymous)) {
    name.erase(at, kAnonymous.size());
  }
  return name;
}

const char* copy_kind(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "to the GPU";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "to the host";
    default:
      return "on the GPU";
  }
}

bool is_pageable(uint8_t from, uint8_t to) {
  return from == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE || to == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
}

class CuptiTracer;
// CUPTI's callbacks carry no context, and it serves one client per process.
std::atomic<CuptiTracer*> active{nullptr};

class CuptiTracer final : public DeviceTracer {
 public:
  explicit CuptiTracer(const Api& api) : api_(api) {}

  // Starts recording. Returns why it cannot, or "".
  std::string start() {
    CuptiTracer* none = nullptr;
    if (!active.compare_exchange_strong(none, this)) return "another trace is under way";
    started_ = true;
    CUptiResult result = api_.callbacks(give_buffer, take_buffer);
    for (const CUpti_ActivityKind kind : kKinds) {
      if (result == CUPTI_SUCCESS) result = api_.enable(kind);
    }
    if (result == CUPTI_SUCCESS) return {};
    const char* text = "";
    api_.result_text(result, &text);
    return fmt::format("CUPTI says {}", text);
  }

  ~CuptiTracer() override {
    if (!started_) return;  // another client uses CUPTI
    for (const CUpti_ActivityKind kind : kKinds) api_.disable(kind);
    api_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    CuptiTracer* self = this;
    active.compare_exchange_strong(self, nullptr);
  }

  DeviceTrace take() override {
    uint64_t begin = 0, end = 0;
    api_.now(&begin);
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) {
      cudaDeviceSynchronize();
      properties(0);
    }
    cudaGetLastError();
    api_.now(&end);
    api_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    const std::lock_guard lock(mutex_);
    DeviceTrace taken = std::move(trace_);
    trace_ = {};
    // Our own calls are not part of the program.
    std::erase_if(taken.calls, [&](const ApiRecord& call) {
      return call.begin >= 1e-9 * double(begin) && call.end <= 1e-9 * double(end);
    });
    for (LaunchRecord& kernel : taken.launches) set_occupancy(kernel, properties(0));
    const auto earlier = [](const auto& a, const auto& b) { return a.begin < b.begin; };
    std::sort(taken.launches.begin(), taken.launches.end(), earlier);
    std::sort(taken.copies.begin(), taken.copies.end(), earlier);
    std::sort(taken.calls.begin(), taken.calls.end(), earlier);
    return taken;
  }

  void pause(bool paused) override {
    if (paused) take_and_keep();
    for (const CUpti_ActivityKind kind : kKinds) paused ? api_.disable(kind) : api_.enable(kind);
  }

 private:
  // Records made before a pause belong to the next take().
  void take_and_keep() {
    DeviceTrace before = take();
    const std::lock_guard lock(mutex_);
    trace_ = std::move(before);
  }

  static void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlign, kBufferBytes));
    *size = *buffer != nullptr ? kBufferBytes : 0;
    *most = 0;  // as many records as fit
  }

  static void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
    if (CuptiTracer* tracer = active.load()) tracer->read(buffer, valid);
    std::free(buffer);
  }

  void read(uint8_t* buffer, size_t valid) {
    const std::lock_guard lock(mutex_);
    for (CUpti_Activity* record = nullptr; api_.next(buffer, valid, &record) == CUPTI_SUCCESS;) {
      switch (record->kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
          add(*reinterpret_cast<const CUpti_ActivityKernel10*>(record));
          break;
        case CUPTI_ACTIVITY_KIND_MEMCPY: {
          const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
          trace_.copies.push_back({copy_kind(copy.copyKind), 1e-9 * double(copy.start),
                                   1e-9 * double(copy.end), int(copy.streamId), int64_t(copy.bytes),
                                   is_pageable(copy.srcKind, copy.dstKind)});
          break;
        }
        case CUPTI_ACTIVITY_KIND_MEMSET: {
          const auto& fill = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
          trace_.copies.push_back({"fill", 1e-9 * double(fill.start), 1e-9 * double(fill.end),
                                   int(fill.streamId), int64_t(fill.bytes), false});
          break;
        }
        case CUPTI_ACTIVITY_KIND_RUNTIME:
          add(*reinterpret_cast<const CUpti_ActivityAPI*>(record));
          break;
        default:
          break;
      }
    }
  }

  void add(const CUpti_ActivityKernel10& from) {
    LaunchRecord kernel;
    auto [entry, fresh] = names_.try_emplace(from.name);
    if (fresh) entry->second = kernel_name(from.name);
    kernel.name = entry->second;
    kernel.begin = 1e-9 * double(from.start);
    kernel.end = 1e-9 * double(from.end);
    kernel.stream = int(from.streamId);
    const int grid[] = {from.gridX, from.gridY, from.gridZ};
    const int block[] = {from.blockX, from.blockY, from.blockZ};
    std::copy(grid, grid + 3, kernel.grid);
    std::copy(block, block + 3, kernel.block);
    kernel.registers = from.registersPerThread;
    kernel.shared = int64_t(from.staticSharedMemory) + from.dynamicSharedMemory;
    trace_.launches.push_back(std::move(kernel));
  }

  void add(const CUpti_ActivityAPI& from) {
    const char* name = nullptr;
    if (api_.callback_name(CUPTI_CB_DOMAIN_RUNTIME_API, from.cbid, &name) != CUPTI_SUCCESS) return;
    const auto thread = threads_.try_emplace(from.threadId, int(threads_.size())).first->second;
    // "cudaGraphLaunch_v10000" is the name with the version that introduced its form.
    std::string text = name;
    if (const size_t at = text.rfind("_v"); at != std::string::npos) text.resize(at);
    trace_.calls.push_back(
        {std::move(text), 1e-9 * double(from.start), 1e-9 * double(from.end), thread});
  }

  const cudaDeviceProp& properties(int device) {
    auto [entry, fresh] = properties_.try_emplace(device);
    if (fresh) check(cudaGetDeviceProperties(&entry->second, device), "the GPU's limits");
    return entry->second;
  }

  const Api api_;
  bool started_ = false;
  std::mutex mutex_;
  DeviceTrace trace_;
  std::map<std::string, std::string> names_;  // mangled name -> readable name
  std::map<uint32_t, int> threads_;
  std::map<int, cudaDeviceProp> properties_;
};

}  // namespace

std::unique_ptr<DeviceTracer> make_tracer(std::string& why_not) {
  Api api;
  why_not = fill(api);
  if (!why_not.empty()) return nullptr;
  // Records of a later CUPTI only grow; those of an earlier one lack fields that we read.
  uint32_t version = 0;
  if (api.version(&version) != CUPTI_SUCCESS || version / 10000 != CUPTI_API_VERSION / 10000 ||
      version < CUPTI_API_VERSION) {
    why_not = fmt::format(
        "libcupti.so.13 is version {}, this build needs {} or a later one of its "
        "series",
        version, CUPTI_API_VERSION);
    return nullptr;
  }
  auto tracer = std::make_unique<CuptiTracer>(api);
  why_not = tracer->start();
  if (!why_not.empty()) return nullptr;
  return tracer;
}

}  // namespace ridgeline::cuda

#else

namespace ridgeline::cuda {

std::unique_ptr<DeviceTracer> make_tracer(std::string& why_not) {
  why_not = "this build was made without CUPTI's headers";
  return nullptr;
}

}  // namespace ridgeline::cuda

#endif
