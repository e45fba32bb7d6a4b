#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "ridgeline/cli/file_uses.h"
#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/config.h"

// Each command declares its flags and the function to call; the engine does the work.
namespace ridgeline::cli {

// The declarations of the commands.
struct Action {
  std::function<int()> run;  // the chosen command; returns the exit code
  FileUses files;            // of all commands
};

void add_train(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_infer(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_import(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_sweep(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_bench_gemm(CLI::App& bench, Action& action);  // of bench, as the next
void add_bench_rnn(CLI::App& bench, Action& action);   // of bench
void add_bench_infer(CLI::App& bench, Action& action);
void add_bench_deepbench(CLI::App& bench, Action& action);
void add_profile(CLI::App& app, Action& action);
void add_ladder(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);
void add_data_describe(CLI::App& data, Action& action);  // a subcommand of it
void add_info(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);  // and the manual page

// --device, --threads, --no-tune, --deterministic, --kernels
struct RunFlags {
  std::string device;
  std::vector<std::string> kernels;
  int threads = 0;
  bool no_tune = false, deterministic = false;

  void declare(CLI::App& command);
  void apply(engine::RunConfig& run) const;  // given flags override the config
};

// --results, --report of a benchmark
struct SinceFlags {
  std::string results = "bench/results";  // results kept for this device, and maybe others
  std::string report;                     // folder of a page about the results, or empty

  void declare(CLI::App& command, Action& action);
  // Called before the work, to find out whether the page can be written.
  void check() const;
  // Shows the change of results (as JSON) since those kept for this device, and writes the page.
  void show(const std::string& json, const engine::RunConfig& run, bool print) const;
};

// --precision, --seconds, --csv, --json and the flags of RunFlags: benchmarks without a config
struct BenchFlags {
  RunFlags run;
  SinceFlags since;
  std::string precision = "fp32", csv, json;

  // `precisions` and `seconds` are their help texts; `csv_head` is the beginning of the CSV.
  void declare(CLI::App& command, Action& action, double& seconds_to, const std::string& precisions,
               const std::string& seconds, const std::string& csv_head);
  void apply(engine::RunConfig& to) const;
  // Whether lines are printed; otherwise stdout has the JSON or CSV only.
  bool prints() const { return json != "-" && csv != "-"; }
};

// CONFIG, --set, --data and the flags of RunFlags
struct ConfigFlags {
  std::string config, data;
  std::vector<std::string> sets;
  RunFlags run;

  // Without `required` a command may get its config from elsewhere.
  void declare(CLI::App& command, Action& action, bool required = true);
  engine::Config load() const;
};

// For commands that declare the argument "config" themselves: it is read, and the data it names.
void declare_config_files(CLI::App& command, Action& action, const ConfigFlags& flags);

// Checks the files that the flags name (FileUses::check), then calls `work` on every rank that a
// launcher has started; an error on one ends all.
int with_ranks(const Action& action, const std::function<int(Communicator&)>& work);
// For a command of a single process; several would interfere. Throws Error(usage) under a launcher.
int alone(const char* command, const Action& action, const std::function<int()>& work);

// Numbers from low to high; CLI::Range lets NaN through.
CLI::Validator range(double low, double high);
void declare_sets(CLI::App& command, std::vector<std::string>& sets, const std::string& help);
void declare_data(CLI::App& command, std::string& data);
void declare_json(CLI::App& command, Action& action, std::string& json);
void declare_csv(CLI::App& command, Action& action, std::string& csv, const std::string& help,
                 Recognise ours);
void declare_svg(CLI::App& command, Action& action, std::string& svg, const std::string& help);
void declare_trace(CLI::App& command, Action& action, std::string& trace, const std::string& help);
// The argument "model".
void declare_model(CLI::App& command, Action& action, std::string& model);
// Declares --precision of a trained model; parse_model_precision returns the requested one, if any.
void declare_model_precision(CLI::App& command, std::string& precision);
std::optional<Precision> parse_model_precision(const std::string& precision);
void declare_report(CLI::App& command, Action& action, std::string& report);

// bench --compare BEFORE AFTER
constexpr int kExitSlower = 8;
void declare_compare(CLI::App& bench, Action& action);

// "-" is stdout; "" is nowhere. JSON and SVG files get their mark (with_mark).
void write_text(const std::string& path, const std::string& text);
// Called at the end of a run that this signal stopped (0: none): after a hang-up stdout may be
// gone, which is no error of the run.
void write_last(int stopped_by, const std::string& path, const std::string& text);

}  // namespace ridgeline::cli
