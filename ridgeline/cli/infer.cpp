#include "ridgeline/engine/infer.h"

#include <fmt/core.h>

#include <map>
#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct Flags {
  std::string model, input, output = "-";
  engine::InferOptions options;
  RunFlags run;
  std::string report;
};

int run(Flags& flags) {
  check_destinations({flags.output});
  flags.run.apply(flags.options.model.run);
  flags.options.report = flags.report;
  const engine::InferReport report =
      engine::infer(flags.model, flags.input, flags.output, flags.options);
  engine::Progress progress;
  for (const std::string& warning : report.warnings) progress.warning(warning);
  progress.line(
      fmt::format("{} inputs in {}: {} inputs/s", report.rows, engine::duration(report.seconds),
                  engine::grouped(report.seconds > 0 ? double(report.rows) / report.seconds : 0)));
  return 0;
}

}  // namespace

void add_infer(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("infer", "labels and probabilities of images");
  command->add_option("model", flags->model, "model file, checkpoint, or the folder of a run")
      ->required()
      ->type_name("");
  command->add_option("--input", flags->input, "IDX images or raw bytes, plain or gzip")
      ->required()
      ->type_name("FILE");
  command->add_option("--output", flags->output, "where to write; - is stdout, the default")
      ->type_name("FILE");
  const std::map<std::string, engine::InferFormat> formats{{"csv", engine::InferFormat::csv},
                                                           {"json", engine::InferFormat::json}};
  command
      ->add_option("--format", flags->options.format,
                   "csv or json (one object a line); default: by the output's ending, else csv")
      ->transform(CLI::CheckedTransformer(formats).description(""))
      ->type_name("NAME");
  command->add_option("--batch", flags->options.batch, "images a launch")
      ->check(CLI::Range(1, 65536).description(""))
      ->type_name("N");
  command->add_flag("--strict", flags->options.model.strict, "refuse NaN and infinite weights");
  declare_report(*command, flags->report);
  flags->run.declare(*command);
  command->footer(
      "Columns: index, label, then the probability of each class (p0, p1, ...).\n"
      "Examples:\n"
      "  ridgeline infer runs/fashion --input t10k-images-idx3-ubyte.gz --output labels.csv\n"
      "  ridgeline infer model.safetensors --input pixels.raw --format json > labels.jsonl");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace ridgeline::cli
