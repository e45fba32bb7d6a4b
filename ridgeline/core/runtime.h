#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/core/tensor.h"
#include "ridgeline/core/uploader.h"

namespace ridgeline {

class ThreadPool;

// A device as the planner and the engine see it: memory, copies, a clock. Each backend has one
// (cpu::CpuRuntime, cuda::CudaRuntime) with further members for its own kernels.
class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual Device device() const = 0;

  // The compute capability of a GPU times ten (90 for sm_90); 0 for a CPU.
  virtual int architecture() const { return 0; }

  // Everything that can change a measured time or a chosen kernel: device model, thread count,
  // library versions. It is the key of the tuning cache.
  virtual std::string fingerprint() const = 0;

  // Allocates zeroed, aligned device memory; throws Error(device) with wanted and free bytes.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;

  virtual void upload(void* device, const void* host, size_t bytes) = 0;
  virtual void download(void* host, const void* device, size_t bytes) = 0;  // waits for the device
  virtual void synchronize() = 0;
  virtual size_t free_memory() const { return 0; }  // bytes that can still be allocated

  // to[0..bytes) = from[0..bytes) in device memory, in stream order with the device's other work.
  virtual void copy(void* to, const void* from, size_t bytes);
  // Returns an uploader of blocks of `bytes`, which copies while the device computes.
  virtual std::unique_ptr<Uploader> make_uploader(size_t bytes);
  // Bytes per second of one large copy between pinned host memory and the device.
  virtual double host_copy_rate(bool to_device);
  // The host threads that the device's kernels share; null if the kernels do not run on the host.
  virtual ThreadPool* thread_pool() { return nullptr; }

  // Zeroes a few bytes (a counter), in stream order with the device's work.
  virtual void clear(void* device, size_t bytes) {
    static constexpr std::byte kZeros[64]{};
    for (size_t done = 0; done < bytes; done += sizeof(kZeros)) {
      upload(static_cast<std::byte*>(device) + done, kZeros,
             std::min(sizeof(kZeros), bytes - done));
    }
  }

  // Returns the median seconds of one call of `run`, warm, over enough calls for a steady result.
  // `budget` is roughly the seconds that the whole measurement may take.
  virtual double time(const std::function<void()>& run, double budget) = 0;

  // Returns the seconds of each of `count` calls, call(0) first, made back to back in one pass.
  // On a GPU the calls queue up behind earlier work, so that gaps between launches do not
  // count.
  virtual std::vector<double> time_each(size_t count, const std::function<void(size_t)>& call);

  // Makes `count` calls of `step` (all asynchronous device work) replayable as one launch. The
  // default returns a function that just calls it; a GPU captures a graph.
  virtual std::function<void()> capture(std::function<void()> step, int64_t count) {
    return [step = std::move(step), count] {
      for (int64_t i = 0; i < count; ++i) step();
    };
  }

  // The ranks that collective kernels communicate with; null if this process is alone.
  Communicator* ranks() const { return ranks_; }
  void set_ranks(Communicator* ranks) { ranks_ = ranks; }
  // Called on all ranks after set_ranks(): prepares communication with the devices of other ranks.
  virtual void connect_ranks() {}

 private:
  Communicator* ranks_ = nullptr;
};

// Owned device memory.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Runtime& runtime, size_t bytes)
      : runtime_(&runtime), data_(bytes > 0 ? runtime.allocate(bytes) : nullptr), bytes_(bytes) {}
  ~DeviceBuffer() { reset(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return bytes_; }

 private:
  void reset() {
    if (data_ != nullptr) runtime_->release(data_);
    data_ = nullptr;
  }
  void swap(DeviceBuffer& other) noexcept {
    std::swap(runtime_, other.runtime_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  Runtime* runtime_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace ridgeline
