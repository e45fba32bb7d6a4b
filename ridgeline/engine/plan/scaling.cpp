#include "ridgeline/engine/plan/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/engine/train/step_share.h"

namespace ridgeline::engine {
namespace {

// Returns the seconds that this machine takes to copy this many bytes to the host and back.
double pcie_seconds(Runtime& runtime, double bytes) {
  if (runtime.device().is_host() || bytes == 0) return 0;
  std::vector<std::byte> host(static_cast<size_t>(bytes));
  const DeviceBuffer device(runtime, host.size());
  return runtime.time(
      [&] {
        runtime.download(host.data(), device.data(), host.size());
        runtime.upload(device.data(), host.data(), host.size());
        runtime.synchronize();
      },
      0.05);
}

}  // namespace

Scaling predict_scaling(const Config& config, const std::filesystem::path& data_dir,
                        const std::vector<int>& ranks, const prof::Network& network) {
  const auto set = std::make_shared<data::DataSet>(load_data(config, data_dir));
  Machine machine(config.run);
  Trainer trainer(machine, config, set);
  Scaling scaling;
  scaling.network = network;
  scaling.batch = trainer.batches().full_size();
  scaling.flops = trainer.runner().plan().program().flops();
  std::vector<int> all{1};
  for (const int n : ranks) {
    if (n > 1) all.push_back(n);
  }
  for (const int n : all) {
    if (n > scaling.batch) {
      throw_error(ErrorKind::usage, "--ranks {}: more than the batch of {} has samples", n,
                  scaling.batch);
    }
    StepShare share(machine, trainer, scaling.batch, n);
    ScalingPoint point;
    point.ranks = n;
    point.samples = share.samples();
    point.kernels_used = share.kernels_used();
    point.compute = share.seconds();
    point.network_bytes = share.network_bytes();
    if (n > 1) point.pcie = pcie_seconds(machine.runtime(), share.bytes());
    const double wire = config.run.reduce == DType::bf16 ? 0.5 : 1;
    for (const double bytes : share.messages()) {
      point.network += prof::all_reduce_seconds(wire * bytes, n, network);
    }
    scaling.points.push_back(point);
  }
  return scaling;
}

std::string to_text(const Scaling& scaling) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out,
                 "a step of {} samples, {}FLOP, over ranks like this machine on a network of {}\n"
                 "time = computing (measured here on a rank's share) + PCIe (measured) + network "
                 "(predicted)\n\n",
                 scaling.batch, engineering(scaling.flops), prof::to_string(scaling.network));
  fmt::format_to(out, "{:>6} {:>7} {:>12} {:>9} {:>12} {:>12} {:>8} {:>10} {:>12}\n", "ranks",
                 "samples", "compute us", "PCIe us", "network us", "step us", "speedup",
                 "efficiency", "if all hides");
  const double one = scaling.points.front().step();
  for (const ScalingPoint& p : scaling.points) {
    fmt::format_to(
        out, "{:>6} {:>7} {:>12.1f} {:>9.1f} {:>12.1f} {:>12.1f} {:>8.2f} {:>8.0f} % {:>12.2f}\n",
        p.ranks, p.samples, 1e6 * p.compute, 1e6 * p.pcie, 1e6 * p.network, 1e6 * p.step(),
        one / p.step(), 100 * one / p.step() / p.ranks, one / p.best_step());
  }
  return text;
}

std::string to_json_text(const Scaling& scaling) {
  nlohmann::json all = {{"batch", scaling.batch},
                        {"flops", scaling.flops},
                        {"bandwidth", scaling.network.bandwidth},
                        {"latency", scaling.network.latency},
                        {"points", nlohmann::json::array()}};
  for (const ScalingPoint& p : scaling.points) {
    all["points"].push_back({{"ranks", p.ranks},
                             {"samples", p.samples},
                             {"kernels_used", p.kernels_used},
                             {"compute_us", 1e6 * p.compute},
                             {"pcie_us", 1e6 * p.pcie},
                             {"network_us", 1e6 * p.network},
                             {"network_bytes", p.network_bytes},
                             {"step_us", 1e6 * p.step()},
                             {"best_step_us", 1e6 * p.best_step()}});
  }
  return dump_json(all, 2) + "\n";
}

}  // namespace ridgeline::engine
