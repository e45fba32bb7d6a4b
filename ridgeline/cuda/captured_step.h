#pragma once

#include <map>

#include "ridgeline/cuda/row.h"

namespace ridgeline::cuda {

// A row of a whole program: many steps are a few launches of a graph, as those of a plan of several
// rows are. Launched one by one, kernels of a few microseconds wait for the host.
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
