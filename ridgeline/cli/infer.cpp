#include "ridgeline/engine/infer/infer.h"

#include <fmt/core.h>

#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/error.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/text.h"
#include "ridgeline/engine/infer/generate.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct InferFlags {
  std::string model, input, output = "-", format, input_format, json, trace;
  bool labels_only = false, times = false;
  engine::InferOptions options;
  engine::GenerateOptions generate;
  bool generates = false;
  RunFlags run;
  std::string report, precision, output_kind;
};

engine::InferFormat parse_format(const std::string& name) {
  if (name.empty()) return engine::InferFormat::automatic;
  if (name == "csv") return engine::InferFormat::csv;
  if (name == "json") return engine::InferFormat::json;
  if (name == "npy") return engine::InferFormat::npy;
  throw_error(ErrorKind::usage, "--format '{}': no such format; use csv, json or npy", name);
}

engine::OutputKind parse_output_kind(const std::string& name) {
  using engine::OutputKind;
  constexpr std::pair<std::string_view, OutputKind> kNames[] = {
      {"", OutputKind::automatic},    {"probabilities", OutputKind::probabilities},
      {"logits", OutputKind::logits}, {"labels", OutputKind::labels},
      {"values", OutputKind::values},
  };
  for (const auto& [text, kind] : kNames) {
    if (text == name) return kind;
  }
  throw_error(ErrorKind::usage,
              "--output-kind '{}': no such kind; use probabilities, logits, labels or values",
              name);
}

engine::InputFormat parse_input_format(const std::string& name) {
  using engine::InputFormat;
  constexpr std::pair<std::string_view, InputFormat> kNames[] = {
      {"", InputFormat::automatic}, {"idx", InputFormat::idx},     {"raw", InputFormat::raw},
      {"csv", InputFormat::csv},    {"lines", InputFormat::lines}, {"jsonl", InputFormat::jsonl},
  };
  for (const auto& [text, format] : kNames) {
    if (text == name) return format;
  }
  throw_error(ErrorKind::usage,
              "--input-format '{}': no such format; use idx, raw, csv, lines or jsonl", name);
}

int run_generate(InferFlags& flags) {
  flags.generate.model = flags.options.model;
  const engine::GenerateReport report = engine::generate(flags.model, flags.generate);
  engine::Progress progress;
  for (const std::string& warning : report.warnings) progress.warning(warning);
  const std::string text = report.text + "\n";
  if (flags.output == "-") {
    write_stdout(text);
  } else {
    write_file_atomic(flags.output, std::as_bytes(std::span(text)));
  }
  progress.line(fmt::format(
      "{} characters in {}: {} characters/s", flags.generate.characters,
      engine::duration(report.seconds),
      engine::grouped(report.seconds > 0 ? double(flags.generate.characters) / report.seconds
                                         : 0)));
  return 0;
}

void show(const InferFlags& flags, const engine::InferReport& report) {
  engine::Progress progress;
  for (const std::string& warning : report.warnings) progress.warning(warning);
  const bool several = report.ranks.size() > 1 || report.ranks.front().devices.size() > 1;
  if (flags.times || several) write_stderr(engine::to_table(report.ranks));
  progress.line(
      fmt::format("{} in {}: {} inputs/s; start-up {}", counted(report.samples, "input"),
                  engine::duration(report.seconds),
                  engine::grouped(report.seconds > 0 ? double(report.samples) / report.seconds : 0),
                  engine::duration(report.startup)));
  write_text(flags.json, report.to_json());
  if (flags.trace.empty()) return;
  prof::Timeline timeline;
  engine::add_to_timeline(report.ranks, timeline);
  write_text(flags.trace, timeline.to_json());
}

int run_infer(InferFlags& flags, Communicator& ranks) {
  flags.options.format = parse_format(flags.format);
  flags.options.input.format = parse_input_format(flags.input_format);
  flags.run.apply(flags.options.model.run);
  flags.options.model.precision = parse_model_precision(flags.precision);
  if (flags.generates) {
    if (ranks.size() > 1) throw_error(ErrorKind::usage, "--generate: start a single process");
    return run_generate(flags);
  }
  if (flags.input.empty()) {
    throw_error(ErrorKind::usage, "infer needs --input FILE, or --generate N for a language model");
  }
  if (flags.options.sharded_input && (flags.options.survive || !flags.report.empty())) {
    throw_error(ErrorKind::usage, "--sharded-input goes with neither --survive nor --report");
  }
  flags.options.report = flags.report;
  flags.options.trace = !flags.trace.empty();
  flags.options.kind = parse_output_kind(flags.output_kind);
  flags.options.outputs = !flags.labels_only && !flags.options.echo;
  const engine::InferReport report =
      engine::infer(flags.model, flags.input, flags.output, flags.options, &ranks);
  if (report.stopped_by != 0) {
    engine::Progress().line("stopped by a signal" +
                            (report.unfinished.empty() ? "" : "; " + report.unfinished));
    return 128 + report.stopped_by;
  }
  if (ranks.is_root()) show(flags, report);
  return 0;
}

void declare_input(CLI::App& command, InferFlags& flags) {
  command
      .add_option("--input-format", flags.input_format,
                  "idx, raw, csv, lines or jsonl; default: by the file")
      ->type_name("NAME");
  command
      .add_option("--columns", flags.options.input.columns,
                  "of texts: names or numbers of csv columns, keys of jsonl objects, with commas; "
                  "default: those it was trained on")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command.add_option("--decoders", flags.options.decoders, "threads that parse and encode texts")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
}

// Results grow in a file beside the output (engine::OutputFile).
void declare_output(CLI::App& command, Action& action, InferFlags& flags) {
  command.add_option("--output", flags.output, "where to write; - is stdout, the default")
      ->type_name("FILE");
  action.files.writes(command, "--output", [&flags] {
    std::vector<FileUses::File> files;
    if (flags.output == "-") return files;
    const Recognise ours = flags.generates ? is_never_ours() : Recognise(engine::is_infer_output);
    files.push_back({flags.output, ours, false});
    if (!flags.generates) files.push_back({flags.output + ".part", ours, false});
    return files;
  });
}

void declare_ranks(CLI::App& command, Action& action, InferFlags& flags) {
  engine::InferOptions& options = flags.options;
  command
      .add_option("--transport", options.transport,
                  "how chunks get to ranks: credits (default), interleaved, nonblocking, blocking "
                  "or scatter")
      ->type_name("NAME");
  command.add_option("--credits", options.credits, "chunks under way to a rank at a time")
      ->check(CLI::Range(1, 4096).description(""))
      ->type_name("N");
  command.add_flag(
      "--survive", options.survive,
      "give the chunks of a lost rank to others (start mpirun with --enable-recovery)");
  command.add_flag("--sharded-input", options.sharded_input,
                   "every rank reads its own part of the input and writes a part of the output, on "
                   "disks they share");
  command.add_flag("--own-part", options.sharded_input)->group("");  // its former name, hidden
  command.add_flag("--echo", options.echo, "label 0 for all, no model run: measures the transport");
  command.add_flag("--times", flags.times, "a table of when each device did what, on stderr");
  declare_json(command, action, flags.json);
  declare_trace(command, action, flags.trace,
                "write a timeline here, for Perfetto or chrome://tracing");
}

}  // namespace

void add_infer(CLI::App& app, Action& action) {
  auto flags = std::make_shared<InferFlags>();
  CLI::App* command =
      app.add_subcommand("infer", "labels and probabilities of images and texts, or new text");
  declare_model(*command, action, flags->model);
  CLI::Option* input =
      command
          ->add_option(
              "--input", flags->input,
              "IDX images, raw bytes, or texts (csv, lines, jsonl); plain or gzip; - is stdin; "
              "of a model of your own data, tables, arrays or folders as in training")
          ->type_name("FILE");
  action.files.reads(*command, "--input", flags->input);
  declare_input(*command, *flags);
  declare_output(*command, action, *flags);
  command
      ->add_option("--format", flags->format,
                   "csv, json (one object a line) or npy; default: by the output's ending, else "
                   "csv")
      ->type_name("NAME");
  command
      ->add_option("--output-kind", flags->output_kind,
                   "probabilities (default of classifiers), logits, labels, or values (of "
                   "regressors)")
      ->type_name("NAME");
  CLI::Option* labels_only = command->add_flag("--labels-only", flags->labels_only,
                                               "leave the outputs of the classes out");
  command
      ->add_option("--batch", flags->options.batch, "inputs a launch (default: 256, on a GPU 4752)")
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
      ->check(range(0.0, 100.0))
      ->type_name("X")
      ->needs(characters);
  command->add_option("--prompt", generate.prompt, "what the text begins with")
      ->type_name("TEXT")
      ->needs(characters);
  command->add_option("--seed", generate.seed, "of the draws (1)")
      ->type_name("N")
      ->needs(characters);
  declare_model_precision(*command, flags->precision);
  command->add_flag("--strict", flags->options.model.strict,
                    "refuse NaN and infinite weights, and say when a file has no checksums");
  declare_report(*command, action, flags->report);
  command->get_option("--report")->excludes(labels_only);
  declare_ranks(*command, action, *flags);
  flags->run.declare(*command);
  command->footer(
      "Columns: index, label, then the probability of each class (p0, p1, ...); of a model "
      "trained\n"
      "with loss = mse its outputs as they are (y0, y1, ...), the label being the largest.\n"
      "A model of your own data names its classes (p_cat, p_dog, ...); a regressor has the "
      "columns\n"
      "index and value, in the units of its data.\n"
      "--device cuda:all uses every GPU, cuda:0,1 these, cpu,cpu two plans on the CPU; under "
      "mpirun\n"
      "every rank takes chunks of the input from the first.\n"
      "Examples:\n"
      "  ridgeline infer runs/fashion --input t10k-images-idx3-ubyte.gz --output labels.csv\n"
      "  ridgeline infer model.safetensors --input pixels.raw --format json > labels.jsonl\n"
      "  mpirun -n 4 ridgeline infer runs/news --input news.csv.gz --output labels.csv\n"
      "  ridgeline infer runs/houses --input new.csv --output prices.csv\n"
      "  ridgeline infer runs/shakespeare --generate 500 --temperature 0.8 --prompt \"ROMEO:\"");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return with_ranks(action, [&](Communicator& ranks) { return run_infer(*flags, ranks); });
    };
  });
}

}  // namespace ridgeline::cli
