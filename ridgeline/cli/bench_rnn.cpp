#include <fmt/core.h>

#include <map>
#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/engine/bench/rnn.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct BenchRnnFlags {
  engine::RnnBenchOptions options;
  BenchFlags bench;
  std::string svg;
};

void print_rnn_line(const engine::RnnBenchLine& line) {
  write_text(
      "-",
      fmt::format(
          "{:<9} {:>6} {:>6} {:>5} {:>3}  {:<9} {:<30} {:>10.2f} {:>11.2f} {:>10} {:>7.0f} %\n",
          line.cell, line.hidden, line.batch, line.steps, line.layers,
          line.training ? "training" : "forward", line.kernel, line.min_us, line.median_us,
          engine::engineering(line.flops_per_second), 100 * line.limit_fraction));
}

int run_bench_rnn(BenchRnnFlags& flags) {
  flags.bench.since.check();
  engine::RnnBenchOptions& options = flags.options;
  flags.bench.apply(options.run);
  const bool table = flags.bench.prints() && flags.svg != "-";
  if (table) {
    write_text(
        "-", fmt::format("{:<9} {:>6} {:>6} {:>5} {:>3}  {:<9} {:<30} {:>10} {:>11} {:>10} {:>9}\n",
                         "cell", "H", "B", "T", "L", "pass", "kernel", "us (min)", "us (median)",
                         "FLOP/s", "of limit"));
    options.each = print_rnn_line;
  }
  const auto lines = engine::bench_rnn(options);
  const std::string json = engine::rnn_bench_json(lines, options.run);
  write_text(flags.bench.json, json);
  write_text(flags.bench.csv, engine::rnn_bench_csv(lines));
  write_text(flags.svg, engine::rnn_bench_svg(lines));
  flags.bench.since.show(json, options.run, table);
  return 0;
}

}  // namespace

void add_bench_rnn(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<BenchRnnFlags>();
  engine::RnnBenchOptions& options = flags->options;
  CLI::App* command = bench.add_subcommand(
      "rnn", "recurrent layers, forward and training, by every kernel that can; us a time step");
  const std::map<std::string, CellKind> cells{{"lstm", CellKind::lstm},
                                              {"gru", CellKind::gru},
                                              {"rnn-tanh", CellKind::rnn_tanh},
                                              {"rnn-relu", CellKind::rnn_relu}};
  command->add_option("--cell", options.cells, "lstm, gru, rnn-tanh, rnn-relu (lstm,gru)")
      ->transform(CLI::Transformer(cells).description(""))
      ->transform(CLI::IsMember(cells).description(""))  // goes first, and names the choices
      ->delimiter(',')
      ->type_name("NAME");
  const auto count = CLI::Range(int64_t{1}, int64_t{1} << 20).description("");
  command->add_option("--hidden", options.hidden, "hidden units and features (128,512,1024)")
      ->check(count)
      ->delimiter(',')
      ->type_name("N");
  command->add_option("--batch", options.batch, "samples side by side (32)")
      ->check(count)
      ->delimiter(',')
      ->type_name("N");
  command->add_option("--steps", options.steps, "time steps (64)")->check(count)->type_name("N");
  command->add_option("--layers", options.layers, "layers above one another (1)")
      ->check(count)
      ->type_name("N");
  command
      ->add_option(
          "--only", options.kernels,
          "only kernels with one of these in their names; plan: also what the planner takes of all")
      ->delimiter(',')
      ->type_name("TEXT");
  declare_svg(*command, action, flags->svg, "draw them");
  flags->bench.declare(*command, action, flags->options.seconds,
                       "fp32, fp64; on a GPU also tf32, bf16, fp16", "time for each line (0.5)",
                       "cell,hidden,batch,");
  command->footer(
      "Examples:\n"
      "  ridgeline bench rnn --cell lstm --hidden 512 --batch 32 --steps 64\n"
      "  ridgeline bench rnn --threads 2 --csv rnn.csv --svg rnn.svg\n"
      "  ridgeline bench rnn --device cuda --precision bf16 --hidden 1024 --batch 16 --steps 128");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return alone("bench rnn", action, [&] { return run_bench_rnn(*flags); });
    };
  });
}

}  // namespace ridgeline::cli
