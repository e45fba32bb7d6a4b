#include <csignal>
#include <filesystem>
#include <span>
#include <utility>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/result_mark.h"
#include "ridgeline/dist/world.h"
#include "ridgeline/engine/train/run_folder.h"

namespace ridgeline::cli {

void RunFlags::declare(CLI::App& command) {
  command
      .add_option("--device", device,
                  "auto, cpu, cuda or cuda:N (default: the config's, else auto)")
      ->type_name("NAME");
  command.add_option("--threads", threads, "CPU threads (default: $RIDGELINE_THREADS, else all)")
      ->type_name("N");
  command.add_flag("--no-tune", no_tune,
                   "take kernels in their fixed order instead of measuring them");
  command.add_flag("--deterministic", deterministic,
                   "the same bits every time, on the same device and --threads: no tuning (as "
                   "--no-tune), and no kernels that do not repeat");
  command
      .add_option("--kernels", kernels,
                  "plan with these kernels only, as in 'cpu.*.reference' or 'cuda.linear'; "
                  "'!cpu.mlp' leaves some out; may be repeated")
      ->allow_extra_args(false)
      ->type_name("PATTERN");
  // --rows is the former name of --kernels. It is hidden from help, completion and the man page.
  // Patterns of both names add up: CLI11 calls back in the order of declaration.
  command
      .add_option_function<std::vector<std::string>>("--rows",
                                                     [this](const std::vector<std::string>& more) {
                                                       kernels.insert(kernels.end(), more.begin(),
                                                                      more.end());
                                                     })
      ->allow_extra_args(false)
      ->type_name("PATTERN")
      ->group("");
}

void RunFlags::apply(engine::RunConfig& run) const {
  if (!device.empty()) run.device = device;
  if (threads != 0) run.threads = threads;
  if (no_tune) run.tune = false;
  if (deterministic) run.deterministic = true;
  run.kernels.insert(run.kernels.end(), kernels.begin(), kernels.end());
}

int with_ranks(const Action& action, const std::function<int(Communicator&)>& work) {
  return dist::World::from_environment()->run([&](Communicator& ranks) {
    if (ranks.is_root()) action.files.check();
    return work(ranks);
  });
}

int alone(const char* command, const Action& action, const std::function<int()>& work) {
  return with_ranks(action, [&](Communicator& ranks) {
    if (ranks.size() > 1) {
      throw_error(ErrorKind::usage, "{}: start a single process, without mpirun", command);
    }
    return work();
  });
}

void declare_sets(CLI::App& command, std::vector<std::string>& sets, const std::string& help) {
  command.add_option("--set", sets, help)->type_name("KEY=VALUE")->allow_extra_args(false);
}

void declare_data(CLI::App& command, std::string& data) {
  command.add_option("--data", data, "folder to look for data in first")->type_name("DIR");
}

CLI::Validator range(double low, double high) {
  const auto check = [low, high](const std::string& text) {
    double value = 0;
    const bool number = CLI::detail::lexical_cast(text, value);
    if (number && value >= low && value <= high) return std::string();
    return fmt::format("{} is not a number from {:g} to {:g}", text, low, high);
  };
  return CLI::Validator(check, "");
}

void BenchFlags::declare(CLI::App& command, Action& action, double& seconds_to,
                         const std::string& precisions, const std::string& seconds,
                         const std::string& csv_head) {
  command.add_option("--seconds", seconds_to, seconds)->check(range(0.0, 3600.0))->type_name("S");
  command.add_option("--precision", precision, precisions)->type_name("NAME");
  declare_csv(command, action, csv, "write the lines as CSV", begins_with({csv_head}));
  run.declare(command);
  since.declare(command, action);
  declare_json(command, action, json);
}

void BenchFlags::apply(engine::RunConfig& to) const {
  run.apply(to);
  to.precision = parse_precision(precision);
}

void declare_json(CLI::App& command, Action& action, std::string& json) {
  command.add_option("--json", json, "write the results here for machines (- is stdout)")
      ->type_name("FILE");
  action.files.writes(command, "--json", json, is_json());
}

void declare_csv(CLI::App& command, Action& action, std::string& csv, const std::string& help,
                 Recognise ours) {
  command.add_option("--csv", csv, help)->type_name("FILE");
  action.files.writes(command, "--csv", csv, std::move(ours));
}

void declare_svg(CLI::App& command, Action& action, std::string& svg, const std::string& help) {
  command.add_option("--svg", svg, help)->type_name("FILE");
  action.files.writes(command, "--svg", svg, is_svg());
}

void declare_trace(CLI::App& command, Action& action, std::string& trace, const std::string& help) {
  command.add_option("--trace", trace, help)->type_name("FILE");
  action.files.writes(command, "--trace", trace, is_trace());
}

void declare_model(CLI::App& command, Action& action, std::string& model) {
  command.add_option("model", model, "model file, checkpoint, or the folder of a run")
      ->required()
      ->type_name("");
  action.files.reads(command, "the model", model, engine::RunFolder::file_names());
}

void declare_model_precision(CLI::App& command, std::string& precision) {
  command
      .add_option("--precision", precision,
                  "compute in it, not in what the model was trained in: fp32, bf16, fp16 or, on a "
                  "GPU, tf32 and fp32x3")
      ->type_name("NAME");
}

std::optional<Precision> parse_model_precision(const std::string& precision) {
  if (precision.empty()) return {};
  return parse_precision(precision);
}

void declare_report(CLI::App& command, Action& action, std::string& report) {
  command.add_option("--report", report, "folder for report.html, a page with charts and tables")
      ->type_name("DIR");
  action.files.writes(command, "--report", [&report] {
    const std::filesystem::path folder = report;
    std::vector<FileUses::File> files;
    if (report.empty()) return files;
    files.push_back({folder / "report.html", is_report(), true});
    files.push_back({folder / "trace.json", is_trace(), true});
    files.push_back({folder / "roofline.svg", is_svg(), true});
    return files;
  });
}

// Returns the data files that a config names; the command itself refuses a config that cannot be
// read.
static std::vector<std::string> data_files(const std::string& config,
                                           const std::vector<std::string>& sets) try {
  const engine::DataConfig data = engine::load_config(config, sets).data;
  std::vector<std::string> files{data.name};
  if (!data.user) return files;
  files.insert(files.end(), {data.user->train, data.user->validation, data.user->test,
                             data.user->validation_target, data.user->test_target});
  files.insert(files.end(), data.user->target.begin(), data.user->target.end());
  return files;
} catch (const Error&) {
  // The values of a sweep are not values of one config.
  return sets.empty() ? std::vector<std::string>() : data_files(config, {});
}

void declare_config_files(CLI::App& command, Action& action, const ConfigFlags& flags) {
  action.files.reads(command, "the config", flags.config);
  action.files.reads(command, "data of the config", [&flags] {
    return flags.config.empty() ? std::vector<std::string>() : data_files(flags.config, flags.sets);
  });
}

void ConfigFlags::declare(CLI::App& command, Action& action, bool required) {
  command.add_option("config", config, "TOML file that describes the network")
      ->required(required)
      ->type_name("");
  declare_config_files(command, action, *this);
  declare_sets(command, sets, "change a setting, as in train.optimizer.lr=0.01; may be repeated");
  declare_data(command, data);
  run.declare(command);
}

engine::Config ConfigFlags::load() const {
  engine::Config loaded = engine::load_config(config, sets);
  run.apply(loaded.run);
  return loaded;
}

void write_text(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  if (path == "-") {
    write_stdout(text);
  } else {
    const std::string marked = with_mark(text);
    write_file_atomic(path, std::as_bytes(std::span(marked)));
  }
}

void write_last(int stopped_by, const std::string& path, const std::string& text) {
  try {
    write_text(path, text);
  } catch (const Error&) {
    if (stopped_by != SIGHUP || path != "-") throw;
  }
}

}  // namespace ridgeline::cli
