#include "ridgeline/engine/bench_mlp.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridgeline/core/philox.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/trainer.h"
#include "ridgeline/prof/limit.h"

namespace ridgeline::engine {
namespace {

struct Network {
  std::vector<int> sizes;
  int64_t batch;
  const char* activation;
};

const Network kNetworks[] = {{{784, 128, 128, 128, 10}, 32, "relu"},
                             {{784, 512, 10}, 128, "relu"},
                             {{784, 512, 10}, 3000, "sigmoid"},
                             {{784, 1024, 1024, 1024, 10}, 32, "relu"}};

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

data::ImageSet random_set(int64_t rows, uint64_t stream) {
  data::ImageSet set;
  set.images = HostTensor(DType::uint8, {rows, 28, 28});
  set.labels = HostTensor(DType::int32, {rows});
  set.classes = 10;
  set.name = "random";
  const Philox random{1, stream};
  auto words = set.images.span<uint8_t>();
  for (size_t i = 0; i < words.size(); ++i) words[i] = uint8_t(random.word(i));
  auto labels = set.labels.span<int32_t>();
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
    const int64_t steps = trainer.advance(trainer.runner().repeats());
    trainer.losses();
    us.push_back(1e6 * clock.seconds() / double(steps));
  }
  std::sort(us.begin(), us.end());
  BenchLine line;
  line.network = label(network);
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
  line.rows = trainer.runner().row_names();
  return line;
}

}  // namespace

std::vector<BenchLine> bench_mlp(const BenchOptions& options) {
  Machine machine(options.run);
  auto set = std::make_shared<data::DataSet>();
  set->train = random_set(12000, streams::kSample);
  set->test = random_set(256, streams::kSample + 1);
  std::vector<BenchLine> lines;
  for (const Network& network : kNetworks) {
    const std::string name = fmt::format("{}:{}", label(network), network.batch);
    const auto& only = options.only;
    if (!only.empty() && std::find(only.begin(), only.end(), name) == only.end()) continue;
    lines.push_back(run_one(network, options, machine, set));
    if (options.each) options.each(lines.back());
  }
  if (lines.empty()) {
    throw_error(ErrorKind::usage, "bench mlp: no network is called {}; write one as 784-512-10:128",
                fmt::join(options.only, ", "));
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
                   {"precision", std::string(name(run.precision))},
                   {"threads", resolve_threads(run.threads)},
                   {"rows", line.rows}});
  }
  return all.dump(2) + "\n";
}

}  // namespace ridgeline::engine
