#pragma once

#include <map>

#include "ridgeline/cuda/kernel.h"

namespace ridgeline::cuda {

// The step of a kernel that covers a whole program. Many training steps become a few launches of a
// captured graph, as in a plan of several kernels: GPU functions of a few microseconds would
// otherwise wait for the host.
class CapturedStep : public Step {
 public:
  CapturedStep(const Binding& binding, std::string what)
      : runtime_(cuda_runtime(binding.runtime())), what_(std::move(what)) {}

  void run_many(int64_t count) final {
    if (is_captured()) return Step::run_many(count);  // adds to the graph that is being captured
    auto& launch = launches_[count];
    if (!launch) launch = runtime_.capture([this] { run(); }, count);
    launch();
  }

 protected:
  cudaStream_t stream() const { return runtime_.stream(); }
  const std::string& what() const { return what_; }  // the op and its shapes, for error messages

 private:
  bool is_captured() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream(), &status), what_);
    return status != cudaStreamCaptureStatusNone;
  }

  CudaRuntime& runtime_;
  std::string what_;
  std::map<int64_t, std::function<void()>> launches_;  // keyed by the number of steps
};

}  // namespace ridgeline::cuda
