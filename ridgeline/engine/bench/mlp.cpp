#include "ridgeline/engine/bench/mlp.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/core/philox.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/train/trainer.h"
#include "ridgeline/prof/limit.h"

namespace ridgeline::engine {
namespace {

struct Network {
  std::vector<int> sizes;
  int64_t batch;
  std::string activation;
};

constexpr int kFeatures = 784, kClasses = 10;  // of the random set
constexpr int64_t kSamples = 12000;
// Steps of one measurement: as many as a run makes between lines of its log, where it waits for the
// device. A launch never crosses the end of an epoch, and an epoch may have few steps.
constexpr int64_t kSampleSteps = 128;
constexpr double kSampleSeconds = 0.02;  // on a CPU, where a launch is done when it returns

const Network kNetworks[] = {{{784, 128, 128, 128, 10}, 32, "relu"},
                             {{784, 512, 10}, 128, "relu"},
                             {{784, 512, 10}, 3000, "sigmoid"},
                             {{784, 1024, 1024, 1024, 10}, 32, "relu"}};

// Parses "784-512-10:128"; the activation is relu unless the network is a known one.
Network parse_network(const std::string& text) {
  for (const Network& known : kNetworks) {
    if (text == fmt::format("{}:{}", fmt::join(known.sizes, "-"), known.batch)) return known;
  }
  Network network{{}, 0, "relu"};
  const char *at = text.data(), *end = at + text.size();
  const auto number = [&](int64_t most) {
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc{} || value < 1 || value > most) return int64_t{0};
    at = stop;
    return value;
  };
  while (true) {
    network.sizes.push_back(int(number(1 << 20)));
    if (network.sizes.back() == 0 || at == end || (*at != '-' && *at != ':')) break;
    if (*at++ == '-') continue;
    network.batch = number(kSamples);
    break;
  }
  if (at != end || network.batch == 0 || network.sizes.size() < 2 ||
      network.sizes.front() != kFeatures || network.sizes.back() != kClasses) {
    throw_error(ErrorKind::usage,
                "bench mlp: '{}' is no network; write sizes and batch as 784-512-10:128 (from {} "
                "inputs to {} classes, a batch of up to {})",
                text, kFeatures, kClasses, kSamples);
  }
  return network;
}

std::vector<Network> networks_of(const BenchOptions& options) {
  std::vector<Network> networks;
  for (const std::string& text : options.only) networks.push_back(parse_network(text));
  for (int h = 128; options.widths && h <= 8192; h *= 2) {
    networks.push_back({{kFeatures, h, h, h, kClasses}, 32, "relu"});
  }
  if (networks.empty()) networks.assign(std::begin(kNetworks), std::end(kNetworks));
  return networks;
}

std::string label(const Network& network) {
  return fmt::format("{}", fmt::join(network.sizes, "-"));
}

Config make_config(const Network& network, const RunConfig& run) {
  std::string text = "[data]\nname = \"random\"\n[model]\nlayers = [\n";
  for (size_t i = 1; i < network.sizes.size(); ++i) {
    text += fmt::format("  {{ type = \"linear\", out = {} }},\n", network.sizes[i]);
    if (i + 1 < network.sizes.size()) {
      text += fmt::format("  {{ type = \"{}\" }},\n", network.activation);
    }
  }
  text += fmt::format("]\n[train]\nbatch = {}\noptimizer = {{ type = \"sgd\", lr = 0.01 }}\n",
                      network.batch);
  Config config = parse_config(text, "bench");
  config.run = run;
  return config;
}

data::SampleSet random_set(int64_t samples, uint64_t stream) {
  data::SampleSet set;
  set.inputs = HostTensor(DType::uint8, {samples, 28, 28});
  set.targets = HostTensor(DType::int32, {samples});
  set.classes = 10;
  set.name = "random";
  const Philox random{1, stream};
  auto words = set.inputs.span<uint8_t>();
  for (size_t i = 0; i < words.size(); ++i) words[i] = uint8_t(random.word(i));
  auto labels = set.targets.span<int32_t>();
  for (size_t i = 0; i < labels.size(); ++i)
    labels[i] = int32_t(random.below(10, words.size() + i));
  return set;
}

BenchLine run_one(const Network& network, const BenchOptions& options, Machine& machine,
                  const std::shared_ptr<const data::DataSet>& set) {
  Trainer trainer(machine, make_config(network, options.run), set);
  std::vector<double> us;
  trainer.advance(1);
  trainer.losses();
  const Clock total;
  while (total.seconds() < options.seconds || us.size() < 5) {
    const Clock clock;
    int64_t steps = 0;
    do {
      steps += trainer.advance(trainer.runner().repeats());
    } while (steps < kSampleSteps && clock.seconds() < kSampleSeconds);
    trainer.losses();
    us.push_back(1e6 * clock.seconds() / double(steps));
  }
  std::sort(us.begin(), us.end());
  BenchLine line;
  line.network = label(network);
  line.activation = network.activation;
  line.batch = network.batch;
  line.min_us = us.front();
  line.median_us = us[us.size() / 2];
  const Program& program = trainer.runner().plan().program();
  line.flops_per_second = program.flops() / line.median_us * 1e6;
  if (const auto ceilings = machine.ceilings()) {
    const prof::Limit limit = prof::limit_of(program, *ceilings);
    line.limit_us = 1e6 * limit.seconds();
    line.limit_fraction = line.limit_us / line.median_us;
  }
  line.kernels = trainer.runner().kernel_names();
  return line;
}

// Returns the type in which weights are stored.
std::string weights_name(const RunConfig& run) {
  const bool half = is_half(run.precision) && run.weights == nn::WeightKind::half;
  return std::string(half                               ? name(run.precision)
                     : run.precision == Precision::fp64 ? "fp64"
                                                        : "fp32");
}

}  // namespace

std::vector<BenchLine> bench_mlp(const BenchOptions& options) {
  const std::vector<Network> networks = networks_of(options);
  Machine machine(options.run);
  auto set = std::make_shared<data::DataSet>();
  set->train = random_set(kSamples, streams::kSample);
  set->test = random_set(256, streams::kSample + 1);
  std::vector<BenchLine> lines;
  for (const Network& network : networks) {
    lines.push_back(run_one(network, options, machine, set));
    if (options.each) options.each(lines.back());
  }
  return lines;
}

std::string bench_json(const std::vector<BenchLine>& lines, const RunConfig& run) {
  nlohmann::json all = nlohmann::json::array();
  for (const BenchLine& line : lines) {
    all.push_back({{"network", line.network},
                   {"batch", line.batch},
                   {"us_min", line.min_us},
                   {"us_median", line.median_us},
                   {"flops_per_second", line.flops_per_second},
                   {"limit_us", line.limit_us},
                   {"limit_fraction", line.limit_fraction},
                   {"activation", line.activation},
                   {"precision", std::string(name(run.precision))},
                   {"weights", weights_name(run)},
                   {"threads", resolve_threads(run.threads)},
                   {"kernels", line.kernels}});
  }
  return dump_json(all, 2) + "\n";
}

}  // namespace ridgeline::engine
