#include "ridgeline/engine/infer/station.h"

#include <algorithm>

#include "ridgeline/dist/sockets.h"
#include "ridgeline/engine/launch_rows.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/stream/lanes.h"

namespace ridgeline::engine {
namespace {

// Activations of a CPU's launch should stay in its caches, a GPU wants to be filled: 4752 texts are
// whole waves of tiles on 132 multiprocessors.
constexpr int64_t kCpuBatch = 256, kGpuBatch = 4752;

bool any_gpu(const std::vector<RunConfig>& lanes) {
  return std::ranges::any_of(lanes, [](const RunConfig& lane) {
    return choose_device(lane.device).kind != DeviceKind::cpu;
  });
}

RunClock common_clock(Communicator* ranks) {
  if (ranks == nullptr || ranks->size() == 1) return RunClock();
  ranks->barrier();
  return RunClock(ranks->from_root(RunClock::process_age()));
}

LoadedModel load_for(const RunConfig& lane, const std::filesystem::path& path,
                     ModelOptions options) {
  options.run.device = lane.device;
  LoadedModel result = load_model(path, options);
  if (!result.symbols.empty()) {
    throw_error(ErrorKind::usage, "{}: is a language model; ask it for text with --generate N",
                path.string());
  }
  return result;
}

}  // namespace

Station::Station(const std::filesystem::path& path, const InferOptions& options,
                 Communicator* ranks)
    : clock(common_clock(ranks)),
      lanes(lanes_of(options.model.run, ranks)),
      loaded(load_for(lanes.front(), path, options.model)),
      delivery(parse_delivery(options.transport)) {
  for (RunConfig& lane : lanes) {
    const RunConfig device = lane;
    lane = loaded.config.run;
    lane.device = device.device;
    lane.threads = device.threads;
    lane.quiet = ranks != nullptr && !ranks->is_root();
  }
  own.rank = ranks == nullptr ? 0 : ranks->rank();
  own.host = dist::host_name();
  own.start = clock.started();
}

int64_t Station::usual_batch() const {
  return launch_rows(any_gpu(lanes) ? kGpuBatch : kCpuBatch, loaded.model.input().numel());
}

WorkerOptions Station::worker_options(const InferOptions& options, int64_t batch) const {
  WorkerOptions worker;
  worker.lanes = lanes;
  // A GPU leaves the cores to the decoders; a CPU's lanes have use for all of them.
  worker.decoders = options.decoders > 0 ? options.decoders
                    : any_gpu(lanes)     ? std::clamp(lanes[0].threads / 2, 1, 8)
                                         : 1;
  worker.credits = options.credits;
  worker.batch = std::max<int64_t>(1, batch);
  worker.outputs = options.outputs;
  worker.spans = options.trace;
  worker.echo = options.echo;
  return worker;
}

}  // namespace ridgeline::engine
