#include "ridgeline/engine/infer.h"

#include <fmt/core.h>

#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/error.h"
#include "ridgeline/core/text.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct Flags {
  std::string model, input, output = "-", format;
  engine::InferOptions options;
  RunFlags run;
};

engine::InferFormat parse_format(const std::string& name) {
  if (name.empty()) return engine::InferFormat::automatic;
  if (name == "csv") return engine::InferFormat::csv;
  if (name == "json") return engine::InferFormat::json;
  throw_error(ErrorKind::usage, "--format '{}': no such format; use csv or json", name);
}

int run(Flags& flags) {
  flags.options.format = parse_format(flags.format);
  check_destinations({flags.output});
  flags.run.apply(flags.options.model.run);
  const engine::InferReport report =
      engine::infer(flags.model, flags.input, flags.output, flags.options);
  engine::Progress progress;
  for (const std::string& warning : report.warnings) progress.warning(warning);
  progress.line(fmt::format(
      "{} in {}: {} inputs/s", counted(report.rows, "input"), engine::duration(report.seconds),
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
  command
      ->add_option("--format", flags->format,
                   "csv or json (one object a line); default: by the output's ending, else csv")
      ->type_name("NAME");
  command->add_option("--batch", flags->options.batch, "images a launch")
      ->check(CLI::Range(1, 65536).description(""))
      ->type_name("N");
  command->add_flag("--strict", flags->options.model.strict, "refuse NaN and infinite weights");
  flags->run.declare(*command);
  command->footer(
      "Columns: index, label, then the probability of each class (p0, p1, ...).\n"
      "Examples:\n"
      "  ridgeline infer runs/fashion --input t10k-images-idx3-ubyte.gz --output labels.csv\n"
      "  ridgeline infer model.safetensors --input pixels.raw --format json > labels.jsonl");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace ridgeline::cli
