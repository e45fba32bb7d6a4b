#pragma once

#include <map>

#include "ridgeline/cuda/kernel.h"

namespace ridgeline::cuda {

// A step of a kernel that covers a whole program. Many steps become a few launches of a graph, as
// in a plan of several kernels: launched one by one, GPU functions of a few microseconds would wait
// for the host.
class CapturedStep : public Step {
 public:
  CapturedStep(const Binding& binding, std::string what)
      : runtime_(cuda_runtime(binding.runtime())), what_(std::move(what)) {}

  void run_many(int64_t count) final {
    if (is_captured()) return Step::run_many(count);  // into the graph that is being made
    auto& launch = launches_[count];
    if (!launch) launch = runtime_.capture([this] { run(); }, count);
    launch();
  }

 protected:
  cudaStream_t stream() const { return runtime_.stream(); }
  const std::string& what() const { return what_; }  // the op and its shapes, for errors

 private:
  bool is_captured() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream(), &status), what_);
    return status != cudaStreamCaptureStatusNone;
  }

  CudaRuntime& runtime_;
  std::string what_;
  std::map<int64_t, std::function<void()>> launches_;  // by number of steps
};

}  // namespace ridgeline::cuda
