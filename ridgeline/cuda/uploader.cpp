// Copies between the host and the GPU that overlap with its other work.
#include <array>
#include <chrono>
#include <cstring>

#include "ridgeline/core/order_maker.h"
#include "ridgeline/cuda/epoch_order.h"
#include "ridgeline/cuda/error.h"
#include "ridgeline/cuda/runtime.h"

namespace ridgeline::cuda {
namespace {

constexpr const char* kWhat = "bringing training data to the GPU";

class PinnedUploader final : public Uploader, public OrderMaker {
 public:
  PinnedUploader(CudaRuntime& runtime, size_t bytes) : runtime_(runtime), bytes_(bytes) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), kWhat);
    for (Slot& slot : slots_) {
      check(cudaMallocHost(&slot.host, bytes), kWhat);
      slot.device = DeviceBuffer(runtime, bytes);
      for (cudaEvent_t* event : {&slot.sent, &slot.placed}) {
        check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), kWhat);
      }
      // The buffer is cleared on the runtime's stream; the first copy waits for that.
      check(cudaEventRecord(slot.placed, runtime.stream()), kWhat);
    }
  }
  ~PinnedUploader() override {
    cudaStreamSynchronize(stream_);
    for (Slot& slot : slots_) {
      if (slot.sent != nullptr) cudaEventDestroy(slot.sent);
      if (slot.placed != nullptr) cudaEventDestroy(slot.placed);
      if (slot.host != nullptr) cudaFreeHost(slot.host);
    }
    cudaStreamDestroy(stream_);
  }
  PinnedUploader(const PinnedUploader&) = delete;
  PinnedUploader& operator=(const PinnedUploader&) = delete;

  std::span<std::byte> block() override {
    now_ = 1 - now_;
    check(cudaEventSynchronize(slots_[now_].sent), kWhat);
    return {static_cast<std::byte*>(slots_[now_].host), bytes_};
  }

  void send() override {
    Slot& slot = slots_[now_];
    check(cudaStreamWaitEvent(stream_, slot.placed, 0), kWhat);
    check(cudaMemcpyAsync(slot.device.data(), slot.host, bytes_, cudaMemcpyHostToDevice, stream_),
          kWhat);
    check(cudaEventRecord(slot.sent, stream_), kWhat);
  }

  void place(void* device) override {
    Slot& slot = slots_[now_];
    check(cudaStreamWaitEvent(runtime_.stream(), slot.sent, 0), kWhat);
    check(cudaMemcpyAsync(device, slot.device.data(), bytes_, cudaMemcpyDeviceToDevice,
                          runtime_.stream()),
          kWhat);
    check(cudaEventRecord(slot.placed, runtime_.stream()), kWhat);
  }

  void make_order(const Feistel& network, int32_t* order) override {
    check(launch_epoch_order(network, order, runtime_.stream()), "making the order of an epoch");
  }

 private:
  struct Slot {
    void* host = nullptr;
    DeviceBuffer device;
    cudaEvent_t sent = nullptr, placed = nullptr;
  };

  CudaRuntime& runtime_;
  size_t bytes_;
  cudaStream_t stream_ = nullptr;
  std::array<Slot, 2> slots_;
  size_t now_ = 0;
};

}  // namespace

std::unique_ptr<Uploader> CudaRuntime::make_uploader(size_t bytes) {
  return std::make_unique<PinnedUploader>(*this, bytes);
}

double CudaRuntime::host_copy_rate(bool to_gpu) {
  // Long compared with a copy's latency, but short enough for start-up.
  constexpr size_t kBytes = size_t{64} << 20;
  constexpr const char* kTimed = "timing copies between the host and the GPU";
  const DeviceBuffer device(*this, kBytes);
  void* memory = nullptr;
  check(cudaMallocHost(&memory, kBytes), kTimed);
  const std::unique_ptr<void, cudaError_t (*)(void*)> host(memory, cudaFreeHost);
  std::memset(memory, 1, kBytes);
  const auto copy = [&] {
    void* to = to_gpu ? device.data() : memory;
    const void* from = to_gpu ? memory : device.data();
    check(cudaMemcpyAsync(to, from, kBytes,
                          to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream_),
          kTimed);
  };
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    check(cudaStreamSynchronize(stream_), kTimed);
    const auto begin = std::chrono::steady_clock::now();
    copy();
    check(cudaStreamSynchronize(stream_), kTimed);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, double(kBytes) / took.count());
  }
  return best;
}

}  // namespace ridgeline::cuda
