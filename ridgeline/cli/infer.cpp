#include "ridgeline/engine/infer.h"

#include <fmt/core.h>

#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/error.h"
#include "ridgeline/core/text.h"
#include "ridgeline/engine/generate.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct Flags {
  std::string model, input, output = "-", format;
  engine::InferOptions options;
  engine::GenerateOptions generate;
  bool generates = false;
  RunFlags run;
  std::string report;
};

engine::InferFormat parse_format(const std::string& name) {
  if (name.empty()) return engine::InferFormat::automatic;
  if (name == "csv") return engine::InferFormat::csv;
  if (name == "json") return engine::InferFormat::json;
  throw_error(ErrorKind::usage, "--format '{}': no such format; use csv or json", name);
}

int run_generate(Flags& flags) {
  flags.generate.model = flags.options.model;
  const engine::GenerateReport report = engine::generate(flags.model, flags.generate);
  engine::Progress progress;
  for (const std::string& warning : report.warnings) progress.warning(warning);
  write_text(flags.output, report.text + "\n");
  progress.line(fmt::format(
      "{} characters in {}: {} characters/s", flags.generate.characters,
      engine::duration(report.seconds),
      engine::grouped(report.seconds > 0 ? double(flags.generate.characters) / report.seconds
                                         : 0)));
  return 0;
}

int run(Flags& flags) {
  flags.options.format = parse_format(flags.format);
  check_destinations({flags.output});
  flags.run.apply(flags.options.model.run);
  if (flags.generates) return run_generate(flags);
  if (flags.input.empty()) {
    throw_error(ErrorKind::usage, "infer needs --input FILE, or --generate N for a language model");
  }
  flags.options.report = flags.report;
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
  CLI::App* command = app.add_subcommand("infer", "labels and probabilities of images, or text");
  command->add_option("model", flags->model, "model file, checkpoint, or the folder of a run")
      ->required()
      ->type_name("");
  CLI::Option* input =
      command->add_option("--input", flags->input, "IDX images or raw bytes, plain or gzip")
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
  engine::GenerateOptions& generate = flags->generate;
  CLI::Option* characters =
      command->add_option("--generate", generate.characters, "characters of text to write")
          ->check(CLI::Range(int64_t{1}, int64_t{1} << 30).description(""))
          ->type_name("N")
          ->excludes(input)
          ->each([flags = flags.get()](const std::string&) { flags->generates = true; });
  command
      ->add_option("--temperature", generate.temperature,
                   "below 1 more cautious, above 1 bolder, 0 always the likeliest (1)")
      ->check(CLI::Range(0.0, 100.0).description(""))
      ->type_name("X")
      ->needs(characters);
  command->add_option("--prompt", generate.prompt, "what the text begins with")
      ->type_name("TEXT")
      ->needs(characters);
  command->add_option("--seed", generate.seed, "of the draws (1)")
      ->type_name("N")
      ->needs(characters);
  command->add_flag("--strict", flags->options.model.strict, "refuse NaN and infinite weights");
  declare_report(*command, flags->report);
  flags->run.declare(*command);
  command->footer(
      "Columns: index, label, then the probability of each class (p0, p1, ...).\n"
      "Examples:\n"
      "  ridgeline infer runs/fashion --input t10k-images-idx3-ubyte.gz --output labels.csv\n"
      "  ridgeline infer model.safetensors --input pixels.raw --format json > labels.jsonl\n"
      "  ridgeline infer runs/shakespeare --generate 500 --temperature 0.8 --prompt \"ROMEO:\"");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace ridgeline::cli
