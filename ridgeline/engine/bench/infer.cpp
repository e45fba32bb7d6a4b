#include "ridgeline/engine/bench/infer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/core/philox.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/resident_set.h"
#include "ridgeline/engine/runner.h"
#include "ridgeline/engine/weights.h"
#include "ridgeline/prof/limit.h"

namespace ridgeline::engine {
namespace {

constexpr int64_t kRepeats = 4;  // batches per launch
// Seconds of work that are launched before each wait for the device: the host does not affect the
// result as long as launching takes it less time than the device needs.
constexpr double kSampleSeconds = 0.01;

// Returns the shape of one sample: from the config for texts, from the file for images.
Shape sample_shape(const Config& config, const std::filesystem::path& data_dir) {
  if (config.data.text) return {config.data.text->coding.length};
  return load_data_part(config, config.data.name, data::Part::test, data_dir, 0, {}).sample_shape();
}

// Makes samples of valid bytes for the network, and labels that nothing reads.
data::SampleSet random_samples(int64_t samples, const Shape& sample, int64_t below) {
  data::SampleSet set;
  set.inputs = HostTensor(DType::uint8, sample.prepend(samples));
  set.targets = HostTensor(DType::int32, {samples});
  set.classes = 1;
  const Philox random{1, streams::kSample};
  auto bytes = set.inputs.span<uint8_t>();
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(random.below(uint64_t(below), i));
  std::ranges::fill(set.targets.span<int32_t>(), 0);
  return set;
}

// Times every op except those that only number the batch.
std::vector<OpTime> time_ops(const Program& program, Machine& machine, double seconds) {
  std::vector<OpTime> times;
  for (size_t at = 0; at < program.ops.size(); ++at) {
    const Op& op = program.ops[at];
    if (std::holds_alternative<Tick>(op)) continue;
    OpTime time{describe(op), {}, {}, 0};
    for (const WayTime& way : time_ways(program, machine, seconds, at)) {
      WayTime& best = way.vendor ? time.library : time.ours;
      if (best.kernel.empty() || way.seconds < best.seconds) best = way;
    }
    if (const auto ceilings = machine.ceilings()) {
      time.floor = prof::limit_of(flops(op), bytes(op), program.precision, *ceilings).seconds();
    }
    times.push_back(std::move(time));
  }
  return times;
}

nlohmann::json op_time_json(const OpTime& time) {
  nlohmann::json json{{"op", time.op}, {"us_floor", 1e6 * time.floor}};
  const auto put = [&](const std::string& who, const WayTime& way) {
    if (way.kernel.empty()) return;
    json["us" + who] = 1e6 * way.seconds;
    json["kernel" + who] = way.kernel;
  };
  put("", time.ours);
  put("_library", time.library);
  return json;
}

}  // namespace

InferBenchLine bench_infer(const Config& config, const std::filesystem::path& data_dir,
                           int64_t batch, double seconds, bool ops) {
  const Clock since_start;
  Machine machine(config.run);
  nn::Model model = config.build_model(sample_shape(config, data_dir));
  model.initialise(config.train.seed);
  nn::LowerOptions options = lower_options(config, {}, int(model.output().numel()));
  options.mode = nn::Mode::infer;
  options.batch = batch;
  options.repeats = kRepeats;
  options.set_samples = options.order_samples = batch * kRepeats;
  const int64_t codes = model.layers().front()->codes_below();
  ResidentSet set(machine.runtime(),
                  random_samples(options.set_samples, model.input(), codes > 0 ? codes : 256));
  std::vector<int32_t> order(size_t(options.order_samples));
  for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
  set.set_order(order);
  nn::Lowered lowered = nn::lower(model, options);
  const Weights weights(machine.runtime(), model, lowered);
  Externals shared;
  set.bind(lowered, shared);
  weights.bind(lowered, shared);
  const double flops = lowered.program.flops();
  Runner runner(machine, std::move(lowered), shared);
  const auto launch = [&](int64_t times) {
    const Clock clock;
    for (int64_t i = 0; i < times; ++i) runner.launch(0, kRepeats);
    machine.runtime().synchronize();
    return clock.seconds();
  };
  launch(1);

  InferBenchLine line;
  line.batch = batch;
  line.ready_seconds = since_start.seconds();
  // Uses the time of the work, not the host's: launches on a GPU return long before they are done.
  const auto launches = int64_t(std::ceil(kSampleSeconds / launch(1)));
  std::vector<double> us;
  const Clock total;
  while (total.seconds() < seconds || us.size() < 5) {
    us.push_back(1e6 * launch(launches) / double(launches * kRepeats));
  }
  std::ranges::sort(us);
  line.min_us = us.front();
  line.median_us = us[us.size() / 2];
  line.inputs_per_second = double(batch) / line.median_us * 1e6;
  line.flops_per_second = flops / line.median_us * 1e6;
  if (const auto ceilings = machine.ceilings()) {
    const prof::Limit limit = prof::limit_of(runner.plan().program(), *ceilings);
    line.limit_fraction = 1e6 * limit.seconds() / line.median_us;
  }
  line.kernels = runner.kernel_names();
  if (ops) line.ops = time_ops(runner.plan().program(), machine, seconds / 10);
  return line;
}

std::string infer_bench_json(const std::vector<InferBenchLine>& lines, const Config& config,
                             const std::string& network) {
  nlohmann::json all = nlohmann::json::array();
  for (const InferBenchLine& line : lines) {
    nlohmann::json ops = nlohmann::json::array();
    for (const OpTime& time : line.ops) ops.push_back(op_time_json(time));
    all.push_back({{"network", network},
                   {"data", config.data.name},
                   {"batch", line.batch},
                   {"us_min", line.min_us},
                   {"us_median", line.median_us},
                   {"inputs_per_second", line.inputs_per_second},
                   {"flops_per_second", line.flops_per_second},
                   {"limit_fraction", line.limit_fraction},
                   {"ready_seconds", line.ready_seconds},
                   {"precision", std::string(name(config.run.precision))},
                   {"threads", resolve_threads(config.run.threads)},
                   {"kernels", line.kernels},
                   {"ops", std::move(ops)}});
  }
  return dump_json(all, 2) + "\n";
}

}  // namespace ridgeline::engine
