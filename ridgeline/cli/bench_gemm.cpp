#include <fmt/core.h>

#include <map>
#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/engine/bench/deepbench_shapes.h"
#include "ridgeline/engine/bench/gemm.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct BenchGemmFlags {
  engine::GemmBenchOptions options;
  BenchFlags bench;
  std::vector<engine::GemmOp> ops{engine::GemmOp::tn, engine::GemmOp::nn, engine::GemmOp::nt};
  std::vector<int64_t> m{1024}, n{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}, k{1024};
  std::string svg, suite;
};

void print_gemm_line(const engine::GemmBenchLine& line) {
  write_text(
      "-", fmt::format("{:<3} {:>6} {:>6} {:>7}  {:<10} {:>11.2f} {:>10} {:>7.0f} %  {}{}\n",
                       name(line.shape.op), line.shape.m, line.shape.n, line.shape.k, line.way,
                       line.us, engine::engineering(line.flops_per_second),
                       100 * line.limit_fraction, line.kernel, line.planned ? "  <- planned" : ""));
}

int run_bench_gemm(BenchGemmFlags& flags) {
  flags.bench.since.check();
  engine::GemmBenchOptions& options = flags.options;
  flags.bench.apply(options.run);
  options.shapes = flags.suite.empty() ? engine::gemm_sweep(flags.ops, flags.m, flags.n, flags.k)
                                       : engine::deepbench_gemms();
  const bool table = flags.bench.prints() && flags.svg != "-";
  if (table) {
    write_text("-", fmt::format("{:<3} {:>6} {:>6} {:>7}  {:<10} {:>11} {:>10} {:>9}  {}\n", "op",
                                "m", "n", "k", "way", "us", "FLOP/s", "of limit", "kernel"));
    options.each = print_gemm_line;
  }
  const auto lines = engine::bench_gemm(options);
  if (table) write_text("-", engine::gemm_bench_findings(lines));
  const std::string json = engine::gemm_bench_json(lines, options.run);
  write_text(flags.bench.json, json);
  write_text(flags.bench.csv, engine::gemm_bench_csv(lines));
  write_text(flags.svg, engine::gemm_bench_svg(lines));
  flags.bench.since.show(json, options.run, table);
  return 0;
}

}  // namespace

void add_bench_gemm(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<BenchGemmFlags>();
  CLI::App* command = bench.add_subcommand(
      "gemm", "matrix products by every way that computes them, over shapes and transpositions");
  const std::map<std::string, engine::GemmOp> ops{
      {"nn", engine::GemmOp::nn}, {"tn", engine::GemmOp::tn}, {"nt", engine::GemmOp::nt}};
  command
      ->add_option("--op", flags->ops,
                   "as BLAS names them: tn is a layer forward, nn the gradient of its input, nt "
                   "that of its weights (tn,nn,nt)")
      ->transform(CLI::Transformer(ops, CLI::ignore_case).description(""))
      ->transform(CLI::IsMember(ops, CLI::ignore_case).description(""))  // goes first
      ->delimiter(',')
      ->type_name("NAME");
  const auto declare = [&](const char* flag, std::vector<int64_t>& sizes, const char* help) {
    command->add_option(flag, sizes, help)
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 24).description(""))
        ->delimiter(',')
        ->type_name("N");
  };
  declare("--m", flags->m, "rows of the product: outputs (1024)");
  declare("--n", flags->n, "columns of the product: the batch (1,2,4, ... 1024)");
  declare("--k", flags->k, "terms of each sum: inputs (1024)");
  command
      ->add_option("--suite", flags->suite, "the training shapes of DeepBench instead: deepbench")
      ->check(CLI::IsMember({"deepbench"}).description(""))
      ->type_name("NAME");
  declare_svg(*command, action, flags->svg, "draw TFLOP/s over the batch");
  flags->bench.declare(*command, action, flags->options.seconds,
                       "fp32, fp64, bf16, fp16 or, on a GPU, tf32 and fp32x3",
                       "time for each kernel (0.02)", "op,m,n,k,");
  command->footer(
      "Examples:\n"
      "  ridgeline bench gemm --m 1760 --k 1760 --n 16,32,64,128,7000 --svg gemm.svg\n"
      "  ridgeline bench gemm --suite deepbench --device cuda --precision bf16 --csv gemm.csv");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return alone("bench gemm", action, [&] { return run_bench_gemm(*flags); });
    };
  });
}

}  // namespace ridgeline::cli
