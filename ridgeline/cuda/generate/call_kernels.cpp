#include <cstdint>

#include "ridgeline/cuda/generate/call.h"
#include "ridgeline/cuda/generate/compile.h"
#include "ridgeline/cuda/generate/gpu_function.h"
#include "ridgeline/cuda/generate/kernels.h"
#include "ridgeline/cuda/kernel.h"

namespace ridgeline::cuda {
namespace {

using namespace generate;

std::string refuse(const CallNet& net, const CudaRuntime& runtime) {
  if (!net.refusal.empty()) return net.refusal;
  if (runtime.architecture() != 90) return "is for compute capability 9.0";
  if (write_call(net).shared_bytes > Target{}.shared_bytes) {
    return "wants more shared memory than there is";
  }
  return Nvrtc::get().refusal();
}

Cover covers(const RemainingOps& rest) {
  const CallNet net = match_call(rest);
  if (std::string reason = refuse(net, cuda_runtime(rest.runtime)); !reason.empty()) {
    return Cover::no(std::move(reason));
  }
  Cover cover = Cover::of(rest.size());
  cover.skips = net.inside;
  return cover;
}

class CallStep final : public Step {
 public:
  CallStep(const Source& source, const Binding& binding)
      : function_(compile_or_take(source.text, "sm_90a").code, source),
        weights_(binding.runtime(), source.workspace_bytes + kBarrier),
        stream_(cuda_runtime(binding.runtime()).stream()) {
    size_t i = 0;
    for (const Value& value : source.arguments) args_.p[i++] = binding.write(value).data;
    args_.space = static_cast<char*>(static_cast<void*>(weights_.data())) + kBarrier;
    args_.barrier = weights_.data();
    args_.steps = 1;
    check(cudaMemsetAsync(args_.barrier, 0, kBarrier, stream_), "a call's counter");
    function_.launch_other(kSpreadName, cuda_runtime(binding.runtime()).sms(), args_, stream_);
  }
  void run() override { function_.launch(args_, stream_); }

 private:
  static constexpr size_t kBarrier = 256;
  GpuFunction function_;
  DeviceBuffer weights_;  // in the layout that products read, after the counter of clusters
  cudaStream_t stream_;
  Args args_{};
};

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding) {
  const CallNet net = match_call({span.program, span.begin, binding.runtime()});
  return std::make_unique<CallStep>(write_call(net), binding);
}

}  // namespace

KernelTable generated_call_kernels() {
  KernelTable table;
  table.push_back(cuda_kernel("cuda.program.cluster_call", covers, prepare,
                              {.least_arch = 90, .only_arch = true, .library = Library::nvrtc}));
  return table;
}

}  // namespace ridgeline::cuda
