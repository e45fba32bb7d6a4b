#include "ridgeline/engine/train/train.h"

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/error.h"
#include "ridgeline/core/json.h"
#include "ridgeline/engine/train/folds.h"
#include "ridgeline/engine/train/resume_config.h"
#include "ridgeline/engine/train/run_folder.h"
#include "ridgeline/engine/written_files.h"

namespace ridgeline::cli {
namespace {

struct TrainFlags {
  ConfigFlags config;
  std::string out, init, json, trace, report;
  int folds = 0;
  bool resume = false;
  std::string resume_from;  // the folder given with --resume; empty: --out
  bool force = false, histograms = false, print_config = false, quiet = false;
};

// If `--resume` comes before CONFIG, CONFIG is parsed as its folder.
void settle_resume(TrainFlags& flags) {
  std::error_code ignored;
  if (flags.config.config.empty() && !flags.resume_from.empty() && !flags.out.empty() &&
      !std::filesystem::is_directory(flags.resume_from, ignored)) {
    std::swap(flags.config.config, flags.resume_from);
  }
  if (!flags.resume_from.empty() && !flags.out.empty() &&
      !std::filesystem::equivalent(flags.resume_from, flags.out, ignored)) {
    throw_error(ErrorKind::usage,
                "--resume {} and --out {}: a run is continued in its own folder; leave --out out",
                flags.resume_from, flags.out);
  }
  if (!flags.resume_from.empty()) flags.out = flags.resume_from;
  if (!flags.config.config.empty()) return;
  if (!flags.resume) {
    throw_error(ErrorKind::usage,
                "a config is required: ridgeline train CONFIG, or --resume DIR to continue a run; "
                "see --help");
  }
  if (flags.out.empty()) {
    throw_error(ErrorKind::usage, "--resume needs DIR, the folder of the run to continue");
  }
}

engine::Config load(const TrainFlags& flags, Communicator& ranks) {
  if (!flags.config.config.empty()) return flags.config.load();
  // All folds have the same config.
  const std::filesystem::path out = flags.out,
                              folder = flags.folds > 0 ? engine::fold_folder(out, 0) : out;
  engine::Config config = engine::load_resume_config(folder, flags.config.sets, &ranks);
  flags.config.run.apply(config.run);
  return config;
}

// Writes the summary at the end of a run, and returns its exit code.
template <typename Report>
int finish(const TrainFlags& flags, const Communicator& ranks, const Report& report,
           int stopped_by) {
  const int code = stopped_by == 0 ? 0 : 128 + stopped_by;
  if (!ranks.is_root()) return code;
  if (!flags.quiet && flags.json != "-") write_last(stopped_by, "-", engine::summary(report));
  write_last(stopped_by, flags.json, dump_json(engine::to_json(report), 2) + "\n");
  return code;
}

int run_train(const TrainFlags& flags, Communicator& ranks) {
  const engine::Config config = load(flags, ranks);
  if (flags.print_config) {
    if (ranks.is_root()) write_text("-", engine::to_toml(config));
    return 0;
  }
  engine::TrainOptions options;
  options.out = flags.out;
  options.data = flags.config.data;
  options.resume = flags.resume;
  options.force = flags.force;
  options.init = flags.init;
  options.histograms = flags.histograms;
  options.trace = flags.trace;
  options.report = flags.report;
  if (flags.quiet) options.progress = engine::Progress::Style::none;
  options.ranks = &ranks;
  if (flags.folds > 0) {
    const engine::FoldsReport report = engine::train_folds(config, options, flags.folds);
    return finish(flags, ranks, report, report.stopped_by);
  }
  const engine::TrainReport report = engine::train(config, options);
  return finish(flags, ranks, report, report.stopped_by);
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = app.add_subcommand("train", "train a network and evaluate it");
  flags->config.declare(*command, action, /*required=*/false);
  command->add_option("--out", flags->out, "folder for the model, metrics, config and checkpoints")
      ->type_name("DIR");
  action.files.writes(*command, "--out", [flags = flags.get()] {
    std::vector<FileUses::File> files;
    if (flags->out.empty() || flags->resume) return files;
    for (const std::string& name : engine::RunFolder::file_names()) {
      const auto path = std::filesystem::path(flags->out) / name;
      // A run may be repeated with the config that it wrote.
      if (!engine::is_ridgeline_config(path)) files.push_back({path, nullptr, true});
    }
    return files;
  });
  auto* resume =
      command
          ->add_option("--resume", flags->resume_from,
                       "continue the run in DIR with its own config, or with CONFIG that in --out")
          ->expected(0, 1)
          ->type_name("DIR");
  command->add_flag("--force", flags->force, "replace the run in --out")->excludes(resume);
  command
      ->add_option("--init", flags->init,
                   "start from the weights of this model (fine-tuning; train.freeze keeps layers)")
      ->excludes(resume)
      ->type_name("MODEL");
  action.files.reads(*command, "--init", flags->init, engine::RunFolder::file_names());
  command
      ->add_option("--folds", flags->folds,
                   "cross-validation: train N times, each without one of N parts that is then "
                   "validated on; folders fold-1 and so on in --out, which --resume continues")
      ->check(CLI::Range(2, 1000).description(""))
      ->type_name("N");
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
      "  ridgeline train --resume runs/fashion --set train.epochs=40\n"
      "  ridgeline train configs/mnist-mlp.toml --init runs/fashion --set train.freeze=[0]\n"
      "  ridgeline train configs/mnist-mlp.toml --folds 5 --out runs/folds\n"
      "  mpirun -n 4 ridgeline train configs/fashion-mlp.toml --out runs/fashion\n"
      "  ridgeline train configs/mnist-mlp.toml --set train.optimizer.lr=0.01 --json result.json");
  command->callback([flags, resume, &action] {
    flags->resume = resume->count() > 0;
    action.run = [flags, &action] {
      settle_resume(*flags);
      return with_ranks(action, [&](Communicator& ranks) { return run_train(*flags, ranks); });
    };
  });
}

}  // namespace ridgeline::cli
