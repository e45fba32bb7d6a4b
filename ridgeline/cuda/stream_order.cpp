#include "ridgeline/cuda/stream_order.h"

#include "ridgeline/cuda/error.h"

namespace ridgeline::cuda {
namespace {

void wait(const CudaRuntime& runtime, cudaStream_t waits, cudaStream_t first) {
  check(cudaSetDevice(runtime.device().index), to_string(runtime.device()));
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event between streams");
  cudaError_t error = cudaEventRecord(event, first);
  if (error == cudaSuccess) error = cudaStreamWaitEvent(waits, event, 0);
  cudaEventDestroy(event);  // CUDA keeps it until the wait is over
  check(error, "ordering two streams");
}

}  // namespace

void wait_for_stream(const CudaRuntime& runtime, void* stream) {
  wait(runtime, runtime.stream(), static_cast<cudaStream_t>(stream));
}

void let_stream_wait(const CudaRuntime& runtime, void* stream) {
  wait(runtime, static_cast<cudaStream_t>(stream), runtime.stream());
}

void wait_on_host(int gpu, void* stream) {
  check(cudaSetDevice(gpu), to_string(Device{DeviceKind::cuda, gpu}));
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "waiting for a stream");
}

}  // namespace ridgeline::cuda
