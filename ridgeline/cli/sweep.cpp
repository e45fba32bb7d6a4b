#include "ridgeline/engine/sweep/sweep.h"

#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/file.h"

namespace ridgeline::cli {
namespace {

struct Flags {
  ConfigFlags config;
  std::string out, csv, json, svg, metric = "accuracy";
};

// Where a result goes: to the file that its own flag names, else into the folder of --out.
std::string place(const Flags& flags, const std::string& flag, const char* name) {
  if (!flag.empty() || flags.out.empty()) return flag;
  return (std::filesystem::path(flags.out) / name).string();
}

std::vector<FileUses::File> files_in_out(const Flags& flags) {
  std::vector<FileUses::File> files;
  const auto add = [&](const std::string& flag, const char* name, const Recognise& ours) {
    if (flag.empty()) files.push_back({place(flags, flag, name), ours, true});
  };
  add(flags.csv, "sweep.csv", engine::is_sweep_csv);
  add(flags.json, "sweep.json", is_json());
  add(flags.svg, "sweep.svg", is_svg());
  return files;
}

void show(size_t index, size_t count, const std::string& label, const engine::TrainReport* report,
          const std::string& error) {
  engine::Progress progress;
  const std::string head = fmt::format("[{}/{}] {}", index + 1, count, label);
  if (report == nullptr) return progress.line(head);
  const bool validates = report->validation.has_value();
  const engine::Evaluation& result = validates ? *report->validation : report->test;
  const engine::Metric main = engine::main_metric(result);
  std::string metrics = validates ? "validation " : "";
  if (main != engine::Metric::loss) {
    metrics += engine::to_text(main, engine::value_of(result, main)) + ", ";
  }
  progress.line(error.empty()
                    ? fmt::format("[{}/{}]   {}loss {:.4f}, {}", index + 1, count, metrics,
                                  result.loss, engine::duration(report->train_seconds))
                    : fmt::format("[{}/{}]   {}", index + 1, count, error));
}

int run(const Flags& flags, Communicator& ranks) {
  // A study takes long: that its results have no place is said before the first run.
  const bool root = ranks.is_root();
  if (!flags.out.empty() && root) make_folder("--out", flags.out);
  const std::string csv = place(flags, flags.csv, "sweep.csv"),
                    json = place(flags, flags.json, "sweep.json"),
                    svg = place(flags, flags.svg, "sweep.svg");
  engine::SweepOptions options;
  options.data = flags.config.data;
  options.adjust = [&](engine::Config& config) { flags.config.run.apply(config.run); };
  if (root) options.progress = show;
  options.ranks = &ranks;
  const engine::Sweep result = engine::sweep(flags.config.config, flags.config.sets, options);
  if (!root) return result.stopped_by == 0 ? 0 : 128 + result.stopped_by;
  const auto write = [&](const std::string& path, const std::string& text) {
    write_last(result.stopped_by, path, text);
  };
  if (csv != "-" && json != "-" && svg != "-") write("-", engine::to_table(result));
  write(csv, engine::to_csv(result));
  write(json, engine::to_json_text(result));
  write(svg, engine::to_svg(engine::to_chart(result, flags.metric)));
  if (result.failed) throw *result.failed;
  return result.stopped_by == 0 ? 0 : 128 + result.stopped_by;
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("sweep", "train every combination of some settings");
  command->add_option("config", flags->config.config, "TOML file that describes the network")
      ->required()
      ->type_name("");
  action.files.reads(*command, "the config", flags->config.config);
  declare_sets(*command, flags->config.sets,
               "values to try, as in train.optimizer.lr=0.1,0.01; one value applies to all runs; "
               "may be repeated");
  declare_data(*command, flags->config.data);
  flags->config.run.declare(*command);
  command->add_option("--out", flags->out, "folder for sweep.csv, sweep.json and sweep.svg")
      ->type_name("DIR");
  action.files.writes(*command, "--out", [flags = flags.get()] { return files_in_out(*flags); });
  declare_csv(*command, action, flags->csv, "write the table here as CSV", engine::is_sweep_csv);
  declare_json(*command, action, flags->json);
  declare_svg(*command, action, flags->svg, "draw the metric over the swept settings here");
  command
      ->add_option(
          "--metric", flags->metric,
          "accuracy, loss, f1, auc, mse, mae, r2, train_loss, us_per_step or inputs_per_second")
      ->check(CLI::IsMember(engine::chart_metrics()).description(""))
      ->type_name("NAME");
  command->footer(
      "Examples:\n"
      "  ridgeline sweep configs/mnist-sigmoid.toml --set model.layers.0.out=128,512,2048 --out "
      "study\n"
      "  ridgeline sweep configs/mnist-sigmoid.toml --set train.optimizer.lr=1,0.1,0.01 \\\n"
      "      --set train.epochs=5,20 --svg rates.svg");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return with_ranks(action, [&](Communicator& ranks) { return run(*flags, ranks); });
    };
  });
}

}  // namespace ridgeline::cli
