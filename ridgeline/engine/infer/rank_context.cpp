#include "ridgeline/engine/infer/rank_context.h"

#include <algorithm>

#include "ridgeline/dist/sockets.h"
#include "ridgeline/engine/launch_samples.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/stream/device_workers.h"

namespace ridgeline::engine {
namespace {

// The activations of a launch should fit into a CPU's caches, and should fill a GPU: 4752 texts are
// whole waves of tiles on 132 SMs.
constexpr int64_t kCpuBatch = 256, kGpuBatch = 4752;

bool any_gpu(const std::vector<RunConfig>& devices) {
  return std::ranges::any_of(
      devices, [](const RunConfig& device) { return !choose_device(device.device).is_host(); });
}

RunClock common_clock(Communicator* ranks) {
  if (ranks == nullptr || ranks->size() == 1) return RunClock();
  ranks->barrier();
  return RunClock(ranks->from_root(RunClock::process_age()));
}

LoadedModel load_for(const RunConfig& device, const std::filesystem::path& path,
                     ModelOptions options) {
  options.run.device = device.device;
  LoadedModel result = load_model(path, options);
  if (!result.symbols.empty()) {
    throw_error(ErrorKind::usage, "{}: is a language model; ask it for text with --generate N",
                path.string());
  }
  return result;
}

}  // namespace

RankContext::RankContext(const std::filesystem::path& path, const InferOptions& options,
                         Communicator* ranks)
    : clock(common_clock(ranks)),
      devices(device_workers(options.model.run, ranks)),
      loaded(load_for(devices.front(), path, options.model)),
      delivery(parse_delivery(options.transport)) {
  for (RunConfig& device : devices) {
    const RunConfig chosen = device;
    device = loaded.config.run;
    device.device = chosen.device;
    device.threads = chosen.threads;
    device.quiet = ranks != nullptr && !ranks->is_root();
  }
  own.rank = ranks == nullptr ? 0 : ranks->rank();
  own.host = dist::host_name();
  own.start = clock.started();
}

OutputKind RankContext::output_kind(const InferOptions& options) const {
  const auto refuse = [](const char* kind, const char* why) {
    throw_error(ErrorKind::usage, "--output-kind {}: {}", kind, why);
  };
  OutputKind kind = options.kind;
  if (several_labels()) {
    if (!options.outputs && !options.echo) refuse("labels", "is what gives the labels alone");
    if (kind == OutputKind::values) refuse("values", "the model gives labels: use probabilities");
    return kind == OutputKind::automatic ? OutputKind::probabilities : kind;
  }
  if (kind == OutputKind::automatic) {
    kind = values()          ? OutputKind::values
           : options.outputs ? OutputKind::probabilities
                             : OutputKind::labels;
  }
  const bool labels_only = !options.outputs && !options.echo;
  if (values() && (kind != OutputKind::values || labels_only)) {
    refuse("values", "is all that this model gives: its targets were values, not classes");
  }
  if (!values() && kind == OutputKind::values) {
    refuse("values",
           "is for models of values; this one gives classes: probabilities, logits, labels");
  }
  if (kind == OutputKind::probabilities && options.kind == kind && !probabilities()) {
    refuse("probabilities", "the model was trained with mse, whose outputs are none; use logits");
  }
  return kind;
}

int64_t RankContext::usual_batch() const {
  return launch_samples(any_gpu(devices) ? kGpuBatch : kCpuBatch, loaded.model.input().numel());
}

WorkerOptions RankContext::worker_options(const InferOptions& options, int64_t batch) const {
  WorkerOptions worker;
  worker.devices = devices;
  // With a GPU the cores are free for decoders; a CPU's workers use all of them.
  worker.decoders = options.decoders > 0 ? options.decoders
                    : any_gpu(devices)   ? std::clamp(devices[0].threads / 2, 1, 8)
                                         : 1;
  worker.credits = options.credits;
  worker.batch = std::max<int64_t>(1, batch);
  const OutputKind kind = output_kind(options);
  worker.outputs = options.outputs && (kind != OutputKind::labels || several_labels());
  worker.logits = kind == OutputKind::logits;
  worker.spans = options.trace;
  worker.echo = options.echo;
  return worker;
}

}  // namespace ridgeline::engine
