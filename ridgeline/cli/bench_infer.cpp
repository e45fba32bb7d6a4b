#include <fmt/format.h>

#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/engine/bench/infer.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct BenchInferFlags {
  ConfigFlags config;
  std::vector<int64_t> batch{256};
  double seconds = 0.5;
  bool ops = false;
  SinceFlags since;
  std::string json;
};

// Prints each op beside the library's time and its lower bound, in microseconds.
std::string ops_table(const std::vector<engine::OpTime>& ops) {
  const auto us = [](const engine::WayTime& way) {
    return way.kernel.empty() ? std::string("-") : fmt::format("{:.1f}", 1e6 * way.seconds);
  };
  std::string text = fmt::format("{:>12} {:>12} {:>12}  op alone, and our kernel\n", "us",
                                 "us (library)", "us (floor)");
  for (const engine::OpTime& time : ops) {
    text += fmt::format("{:>12} {:>12} {:>12.1f}  {}; {}\n", us(time.ours), us(time.library),
                        1e6 * time.floor, time.op, time.ours.kernel);
  }
  return text;
}

int run_bench_infer(const BenchInferFlags& flags) {
  flags.since.check();
  const engine::Config config = flags.config.load();
  const bool table = flags.json != "-";
  if (table) {
    write_text("-", fmt::format("{:>7} {:>12} {:>12} {:>12} {:>10} {:>7}\n", "batch", "us (min)",
                                "us (median)", "inputs/s", "FLOP/s", "limit"));
  }
  std::vector<engine::InferBenchLine> lines;
  for (const int64_t batch : flags.batch) {
    lines.push_back(
        engine::bench_infer(config, flags.config.data, batch, flags.seconds, flags.ops));
    const engine::InferBenchLine& line = lines.back();
    if (!table) continue;
    write_text("-",
               fmt::format("{:>7} {:>12.1f} {:>12.1f} {:>12} {:>10} {:>5.0f} %\n", line.batch,
                           line.min_us, line.median_us, engine::grouped(line.inputs_per_second),
                           engine::engineering(line.flops_per_second), 100 * line.limit_fraction));
    write_text("-", fmt::format("        ready in {:.1f} s; {}\n", line.ready_seconds,
                                fmt::join(line.kernels, " ")));
    if (flags.ops) write_text("-", ops_table(line.ops));
  }
  const std::string network = std::filesystem::path(flags.config.config).stem().string();
  const std::string json = engine::infer_bench_json(lines, config, network);
  write_text(flags.json, json);
  flags.since.show(json, config.run, table);
  return 0;
}

}  // namespace

void add_bench_infer(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<BenchInferFlags>();
  CLI::App* command = bench.add_subcommand(
      "infer",
      "a config's network on random samples that lie on the device, bytes to probabilities");
  flags->config.declare(*command, action);
  command->add_option("--batch", flags->batch, "samples a step (256); several with commas")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24).description(""))
      ->delimiter(',')
      ->type_name("N");
  command->add_option("--seconds", flags->seconds, "time for each line (0.5)")
      ->check(range(0.0, 3600.0))
      ->type_name("S");
  command->add_flag("--ops", flags->ops,
                    "also every op alone, by the fastest kernel that takes it");
  flags->since.declare(*command, action);
  declare_json(*command, action, flags->json);
  command->footer(
      "Examples:\n"
      "  ridgeline bench infer configs/agnews-charcnn.toml --device cuda --batch 4752\n"
      "  ridgeline bench infer configs/agnews-charcnn.toml --set run.precision=fp32 --batch 16,64\n"
      "  ridgeline bench infer configs/fashion-lenet72.toml --batch 100,1000,10000 --ops");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return alone("bench infer", action, [&] { return run_bench_infer(*flags); });
    };
  });
}

}  // namespace ridgeline::cli
