#include "ridgeline/cuda/profile.h"

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include "ridgeline/cuda/error.h"
#include "ridgeline/cuda/runtime.h"

namespace ridgeline::cuda {
namespace {

class Events {
 public:
  explicit Events(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      cudaEvent_t event = nullptr;
      check(cudaEventCreate(&event), "an event for timing");
      events_.push_back(event);
    }
  }
  ~Events() {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  void record(size_t index, cudaStream_t stream) {
    check(cudaEventRecord(events_[index], stream), "an event for timing");
  }
  double seconds_between(size_t first, size_t second) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events_[first], events_[second]), "timed work");
    return 1e-3 * double(milliseconds);
  }
  void wait(size_t index) { check(cudaEventSynchronize(events_[index]), "timed work"); }

 private:
  std::vector<cudaEvent_t> events_;
};

class RangedStep final : public Step {
 public:
  RangedStep(std::unique_ptr<Step> step, std::string name)
      : step_(std::move(step)), name_(std::move(name)) {}
  void run() override {
    nvtxRangePushA(name_.c_str());
    step_->run();
    nvtxRangePop();
  }
  void run_many(int64_t count) override {
    nvtxRangePushA(name_.c_str());
    step_->run_many(count);
    nvtxRangePop();
  }
  std::string variant() const override { return step_->variant(); }

 private:
  std::unique_ptr<Step> step_;
  std::string name_;
};

}  // namespace

std::vector<double> CudaRuntime::time_each(size_t count, const std::function<void(size_t)>& call) {
  Events events(count + 1);
  events.record(0, stream_);
  for (size_t i = 0; i < count; ++i) {
    call(i);
    events.record(i + 1, stream_);
  }
  events.wait(count);
  std::vector<double> seconds;
  for (size_t i = 0; i < count; ++i) seconds.push_back(events.seconds_between(i, i + 1));
  return seconds;
}

Kernel with_range(Kernel kernel) {
  kernel.prepare = [name = kernel.name, prepare = std::move(kernel.prepare)](
                       const Span& span, const Binding& binding) {
    return std::unique_ptr<Step>(new RangedStep(prepare(span, binding), name));
  };
  return kernel;
}

}  // namespace ridgeline::cuda
