#include "ridgeline/engine/train/train.h"

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/json.h"
#include "ridgeline/engine/own_files.h"
#include "ridgeline/engine/train/run_folder.h"

namespace ridgeline::cli {
namespace {

struct Flags {
  ConfigFlags config;
  std::string out, json, trace, report;
  bool resume = false, force = false, histograms = false, print_config = false, quiet = false;
};

int run(const Flags& flags, Communicator& ranks) {
  const engine::Config config = flags.config.load();
  if (flags.print_config) {
    if (ranks.is_root()) write_text("-", engine::to_toml(config));
    return 0;
  }
  engine::TrainOptions options;
  options.out = flags.out;
  options.data = flags.config.data;
  options.resume = flags.resume;
  options.force = flags.force;
  options.histograms = flags.histograms;
  options.trace = flags.trace;
  options.report = flags.report;
  if (flags.quiet) options.progress = engine::Progress::Style::none;
  options.ranks = &ranks;
  const engine::TrainReport report = engine::train(config, options);
  const int code = report.stopped_by == 0 ? 0 : 128 + report.stopped_by;
  if (!ranks.is_root()) return code;
  if (!flags.quiet && flags.json != "-") {
    write_last(report.stopped_by, "-", engine::summary(report));
  }
  write_last(report.stopped_by, flags.json, dump_json(engine::to_json(report), 2) + "\n");
  return code;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("train", "train a network and evaluate it");
  flags->config.declare(*command, action);
  command->add_option("--out", flags->out, "folder for the model, metrics, config and checkpoints")
      ->type_name("DIR");
  action.files.writes(*command, "--out", [flags = flags.get()] {
    std::vector<FileUses::File> files;
    if (flags->out.empty() || flags->resume) return files;
    for (const std::string& name : engine::RunFolder::file_names()) {
      const auto path = std::filesystem::path(flags->out) / name;
      // A run may be repeated with the config that it kept.
      if (!engine::is_own_config(path)) files.push_back({path, nullptr, true});
    }
    return files;
  });
  auto* resume = command->add_flag("--resume", flags->resume, "continue the run in --out");
  command->add_flag("--force", flags->force, "replace the run in --out")->excludes(resume);
  command->add_flag("--histograms", flags->histograms,
                    "histograms of the weights in TensorBoard's event files, at each evaluation");
  command->add_flag("--print-config", flags->print_config, "print the resolved config and stop");
  command->add_flag("--quiet", flags->quiet, "show warnings and errors only");
  declare_trace(*command, action, flags->trace,
                "write a timeline of the run here, for ui.perfetto.dev or chrome://tracing");
  declare_report(*command, action, flags->report);
  declare_json(*command, action, flags->json);
  command->footer(
      "Examples:\n"
      "  ridgeline train configs/fashion-mlp.toml --out runs/fashion\n"
      "  ridgeline train configs/fashion-mlp.toml --out runs/fashion --resume\n"
      "  mpirun -n 4 ridgeline train configs/fashion-mlp.toml --out runs/fashion\n"
      "  ridgeline train configs/mnist-mlp.toml --set train.optimizer.lr=0.01 --json result.json");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return with_ranks(action, [&](Communicator& ranks) { return run(*flags, ranks); });
    };
  });
}

}  // namespace ridgeline::cli
