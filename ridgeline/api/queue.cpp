#include <atomic>

#include "ridgeline/api/model.h"
#include "ridgeline/registry.h"

namespace ridgeline {
namespace {

std::atomic<int64_t> copied{0};

Runtime& runtime_of(void* runtime) { return *static_cast<Runtime*>(runtime); }

}  // namespace

int64_t copied_bytes() { return copied; }

namespace api {

void count_copied(int64_t bytes) { copied += bytes; }

void check_place(const Array& array, const Device& device, const char* what) {
  if (array.gpu < 0) return;
  const Device place{DeviceKind::cuda, array.gpu};
  if (place == device) return;
  throw_error(ErrorKind::usage, "{}: got an array on {}, expected one on {}", what,
              to_string(place), to_string(device));
}

}  // namespace api

int GpuQueue::gpu() const {
  const Device device = runtime_of(runtime_).device();
  return device.is_host() ? -1 : device.index;
}

void* GpuQueue::stream() const { return stream_of(runtime_of(runtime_)); }
void GpuQueue::wait_for(void* stream) const {
  ridgeline::wait_for_stream(runtime_of(runtime_), stream);
}
void GpuQueue::let_wait(void* stream) const {
  ridgeline::let_stream_wait(runtime_of(runtime_), stream);
}
void GpuQueue::synchronize() const { runtime_of(runtime_).synchronize(); }
void* GpuQueue::allocate(size_t bytes) const { return runtime_of(runtime_).allocate(bytes); }
void GpuQueue::release(void* memory) const noexcept { runtime_of(runtime_).release(memory); }
void GpuQueue::download(void* host, const void* device, size_t bytes) const {
  runtime_of(runtime_).download(host, device, bytes);
}

void wait_for_stream(int gpu, void* stream) { wait_on_host({DeviceKind::cuda, gpu}, stream); }

}  // namespace ridgeline
