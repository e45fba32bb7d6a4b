#include <fmt/core.h>

#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/engine/bench/deepbench.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct BenchDeepbenchFlags {
  engine::DeepbenchOptions options;
  BenchFlags bench;
};

void print_deepbench_line(const engine::DeepbenchLine& line) {
  const std::string limit =
      line.limit_fraction > 0 ? fmt::format("{:.0f} %", 100 * line.limit_fraction) : "-";
  write_text("-",
             fmt::format("{:<10} {:<56} {:<8} {:<12} {:>11.2f} {:>10}{} {:>8}\n", line.part,
                         line.shape, line.pass, line.way, line.us, engine::engineering(line.rate),
                         line.part == "all-reduce" ? "B/s" : "FLOP/s", limit));
}

int run_bench_deepbench(BenchDeepbenchFlags& flags, Communicator& ranks) {
  engine::DeepbenchOptions& options = flags.options;
  flags.bench.apply(options.run);
  options.ranks = &ranks;
  if (ranks.is_root()) flags.bench.since.check();
  const bool table = ranks.is_root() && flags.bench.prints();
  if (table) options.each = print_deepbench_line;
  const auto lines = engine::bench_deepbench(options);
  if (!ranks.is_root()) return 0;
  if (table) write_text("-", engine::deepbench_findings(lines));
  const std::string json = engine::deepbench_json(lines, options.run, ranks.size());
  write_text(flags.bench.json, json);
  write_text(flags.bench.csv, engine::deepbench_csv(lines));
  flags.bench.since.show(json, options.run, table);
  return 0;
}

}  // namespace

void add_bench_deepbench(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<BenchDeepbenchFlags>();
  CLI::App* command = bench.add_subcommand(
      "deepbench",
      "DeepBench's training shapes: products, convolutions, recurrent layers, and sums "
      "over ranks. Recurrent layers on a GPU: what the planner takes beside the library, or, with "
      "--kernels, each of those kernels");
  command
      ->add_option("--part", flags->options.parts,
                   "gemm, conv, rnn (all three), or all-reduce, where mpirun started several ranks")
      ->check(CLI::IsMember({"gemm", "conv", "rnn", "all-reduce"}).description(""))
      ->delimiter(',')
      ->type_name("NAME");
  command->add_option("--take", flags->options.take, "every N-th shape only (1)")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}).description(""))
      ->type_name("N");
  flags->bench.declare(*command, action, flags->options.seconds,
                       "fp32, fp64, bf16, fp16 or, on a GPU, tf32 and fp32x3",
                       "time for each kernel (0.02)", "part,shape,pass,");
  command->footer(
      "Examples:\n"
      "  ridgeline bench deepbench --device cuda --precision bf16 --csv deepbench.csv\n"
      "  ridgeline bench deepbench --part conv --take 10\n"
      "  mpirun -n 4 ridgeline bench deepbench --part all-reduce");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return with_ranks(action,
                        [&](Communicator& ranks) { return run_bench_deepbench(*flags, ranks); });
    };
  });
}

}  // namespace ridgeline::cli
