#include <fmt/core.h>

#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/engine/bench/mlp.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct BenchMlpFlags {
  engine::BenchOptions options;
  RunFlags run;
  SinceFlags since;
  std::string json, precision = "fp32", weights = "master";
};

int run_bench_mlp(BenchMlpFlags& flags) {
  flags.since.check();
  engine::BenchOptions& options = flags.options;
  flags.run.apply(options.run);
  options.run.precision = parse_precision(flags.precision);
  options.run.weights = flags.weights == "half" ? nn::WeightKind::half : nn::WeightKind::master;
  if (flags.weights == "half" && !is_half(options.run.precision)) {
    throw_error(ErrorKind::usage, "--weights half is for --precision bf16 or fp16, not {}",
                flags.precision);
  }
  if (flags.json != "-") {
    write_text("-",
               fmt::format("{:<24} {:>6} {:>12} {:>12} {:>14} {:>10}  {}\n", "network", "batch",
                           "us (min)", "us (median)", "FLOP/s", "of limit", "kernels"));
    options.each = [](const engine::BenchLine& line) {
      write_text(
          "-",
          fmt::format("{:<24} {:>6} {:>12.1f} {:>12.1f} {:>14} {:>8.0f} %  {}\n", line.network,
                      line.batch, line.min_us, line.median_us,
                      engine::engineering(line.flops_per_second), 100 * line.limit_fraction,
                      line.kernels.size() == 1 ? line.kernels.front()
                                               : fmt::format("{} kernels", line.kernels.size())));
    };
  }
  const auto lines = engine::bench_mlp(options);
  const std::string json = engine::bench_json(lines, options.run);
  write_text(flags.json, json);
  flags.since.show(json, options.run, flags.json != "-");
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto flags = std::make_shared<BenchMlpFlags>();
  CLI::App* bench = app.add_subcommand("bench", "how fast this machine trains, and of what limit");
  bench->require_subcommand(0, 1);
  declare_compare(*bench, action);
  add_bench_gemm(*bench, action);
  add_bench_rnn(*bench, action);
  add_bench_infer(*bench, action);
  add_bench_deepbench(*bench, action);
  CLI::App* command = bench->add_subcommand("mlp", "training steps of perceptrons on random data");
  command->add_option("--seconds", flags->options.seconds, "time for each network")
      ->check(range(0.0, 3600.0))
      ->type_name("S");
  command
      ->add_option("--only", flags->options.only,
                   "network and batch, as 784-512-10:128, instead of four usual ones; may be "
                   "repeated")
      ->allow_extra_args(false)
      ->type_name("NET");
  command->add_flag("--widths", flags->options.widths,
                    "784-h-h-h-10 at batch 32 for h = 128, 256, ... 8192");
  command
      ->add_option("--precision", flags->precision,
                   "fp32, fp64, bf16, fp16 or, on a GPU, tf32 and fp32x3")
      ->type_name("NAME");
  command
      ->add_option("--weights", flags->weights,
                   "of bf16 and fp16: master (kept in fp32) or half; no loss is scaled")
      ->check(CLI::IsMember({"master", "half"}).description(""))
      ->type_name("NAME");
  flags->run.declare(*command);
  flags->since.declare(*command, action);
  declare_json(*command, action, flags->json);
  command->footer(
      "Examples:\n"
      "  ridgeline bench mlp\n"
      "  ridgeline bench mlp --device cuda --precision bf16 --weights half --widths\n"
      "  ridgeline bench --compare before.json after.json\n"
      "  ridgeline bench mlp --threads 1 --only 784-512-10:128 --json bench.json");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return alone("bench mlp", action, [&] { return run_bench_mlp(*flags); });
    };
  });
}

}  // namespace ridgeline::cli
