#include "ridgeline/cuda/generate/kernels.h"

#include <cstdint>
#include <utility>

#include "ridgeline/cuda/generate/compile.h"
#include "ridgeline/cuda/generate/gpu_function.h"
#include "ridgeline/cuda/kernel.h"

namespace ridgeline::cuda {
namespace {

using namespace generate;

constexpr int kAlign = 256;
constexpr size_t kMostLayers = 16;

Target target_of(const CudaRuntime& runtime, Tiles tiles) {
  Target target;
  target.tiles = tiles;
  target.architecture = runtime.architecture();
  target.blocks = runtime.sms();
  return target;
}

std::string refuse(const NetStep& net) {
  if (!net.refusal.empty()) return net.refusal;
  if (net.layers.size() > kMostLayers) return fmt::format("takes up to {} layers", kMostLayers);
  int64_t widest = net.layers.front().in();
  for (const NetLayer& layer : net.layers) widest = std::max(widest, layer.out());
  if (widest > 16384 || net.batch() > 65536) return "an extent of more than it counts in";
  return {};
}
std::string refuse(const NetStep& net, const CudaRuntime& runtime) {
  if (std::string reason = refuse(net); !reason.empty()) return reason;
  if (runtime.architecture() != 90) return "is for compute capability 9.0";
  return Nvrtc::get().refusal();
}

Cover covers(const RemainingOps& rest, Tiles tiles) {
  if (rest.begin != 0) return Cover::no("covers whole programs only");
  const auto& runtime = cuda_runtime(rest.runtime);
  const NetStep net = match_net_step(rest);
  if (std::string reason = refuse(net, runtime); !reason.empty())
    return Cover::no(std::move(reason));
  const Schedule schedule = choose_schedule(net, target_of(runtime, tiles));
  if (!schedule.refusal.empty()) return Cover::no(schedule.refusal);
  Cover cover = Cover::of(rest.size());
  cover.skips = net.inside;
  cover.workspace = write_source(net, schedule).workspace_bytes + kAlign;
  return cover;
}

class GeneratedStep final : public Step {
 public:
  GeneratedStep(const Source& source, const Binding& binding, const Compiled& compiled)
      : function_(compiled.code, source),
        barrier_(binding.runtime(), kAlign),
        stream_(cuda_runtime(binding.runtime()).stream()) {
    size_t i = 0;
    for (const Value& value : source.arguments) args_.p[i++] = binding.write(value).data;
    args_.space =
        reinterpret_cast<void*>(up(reinterpret_cast<intptr_t>(binding.workspace()), kAlign));
    args_.barrier = barrier_.data();
  }
  void run() override { run_many(1); }
  void run_many(int64_t count) override {
    args_.steps = count;
    function_.launch(args_, stream_);
  }

 private:
  GpuFunction function_;
  // Not in the workspace, where leftovers of other kernels would let blocks pass the barrier.
  DeviceBuffer barrier_;
  cudaStream_t stream_;
  Args args_{};
};

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding, Tiles tiles) {
  const auto& runtime = cuda_runtime(binding.runtime());
  const NetStep net = match_net_step({span.program, span.begin, runtime});
  const Schedule schedule = choose_schedule(net, target_of(runtime, tiles));
  const Source source = write_source(net, schedule);
  return std::make_unique<GeneratedStep>(source, binding, compile_or_take(source.text, "sm_90a"));
}

}  // namespace

std::string generated_source(const Program& program, const CudaRuntime& runtime, Tiles tiles) {
  const NetStep net = match_net_step({program, 0, runtime});
  if (!refuse(net, runtime).empty()) return {};
  const Schedule schedule = choose_schedule(net, target_of(runtime, tiles));
  return schedule.refusal.empty() ? write_source(net, schedule).text : std::string();
}

std::string readable_source(const Program& program, const Runtime& runtime) {
  const NetStep net = match_net_step({program, 0, runtime});
  const bool gpu = runtime.device().kind == DeviceKind::cuda;
  const Target target = gpu ? target_of(cuda_runtime(runtime), Tiles::where_faster) : Target{};
  std::string reason = refuse(net);
  if (reason.empty()) {
    const Schedule schedule = choose_schedule(net, target);
    if (schedule.refusal.empty()) return write_source(net, schedule).text;
    reason = schedule.refusal;
  }
  throw_error(ErrorKind::usage, "no kernel is generated for this net: {}", reason);
}

std::string generator_support() {
  const Nvrtc& nvrtc = Nvrtc::get();
  if (nvrtc.refusal().empty()) return "NVRTC " + nvrtc.version();
  return fmt::format(
      "none: {}; without it the training step of a perceptron or a small convolutional net is "
      "several kernels, three times slower and more",
      nvrtc.refusal());
}

Kernel generated_kernel(std::string name, Tiles tiles) {
  return cuda_kernel(
      std::move(name), [tiles](const RemainingOps& rest) { return covers(rest, tiles); },
      [tiles](const Span& span, const Binding& binding) { return prepare(span, binding, tiles); },
      {.least_arch = 90, .only_arch = true, .library = Library::nvrtc});
}

KernelTable generated_kernels() {
  KernelTable table;
  table.push_back(generated_kernel("cuda.program.persistent", Tiles::where_faster));
  return table;
}

}  // namespace ridgeline::cuda
