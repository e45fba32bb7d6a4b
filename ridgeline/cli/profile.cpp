#include "ridgeline/engine/profile/profile.h"

#include <filesystem>
#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/file.h"
#include "ridgeline/engine/report/page.h"
#include "ridgeline/engine/train/run_folder.h"

namespace ridgeline::cli {
namespace {

struct ProfileFlags {
  ConfigFlags config;
  engine::ProfileOptions options;
  std::string json, trace, report;
};

// Returns the ladder of this name, unless there is a file of that name.
const engine::Ladder* ladder_of(const std::string& name) {
  if (std::filesystem::exists(name)) return nullptr;
  for (const engine::Ladder& ladder : engine::ladders()) {
    if (name == ladder.name) return &ladder;
  }
  return nullptr;
}

// A .toml file is a config; anything else is a model.
bool is_config(const std::string& path) {
  return std::filesystem::path(path).extension() == ".toml";
}

engine::Profile measure(const ProfileFlags& flags, Communicator& ranks) {
  engine::ProfileOptions options = flags.options;
  options.data = flags.config.data;
  options.ranks = &ranks;
  if (is_config(flags.config.config)) {
    engine::Config config = flags.config.load();
    if (options.batch > 0) config.train.batch = options.batch;
    config.train.batch_named |= options.batch > 0;
    return engine::profile_training(config, flags.config.config, options);
  }
  const engine::Ladder* ladder = ladder_of(flags.config.config);
  if (ladder != nullptr && (ranks.size() == 1 || !ladder->forward)) {
    engine::Config config = engine::ladder_config(*ladder, flags.config.sets);
    flags.config.run.apply(config.run);
    return engine::profile_ladder(*ladder, config, options);
  }
  if (ranks.size() > 1) {
    throw_error(ErrorKind::usage,
                "profile: ranks share a training step; give a config, or start "
                "a model's profile as one process");
  }
  engine::ModelOptions model;
  flags.config.run.apply(model.run);
  return engine::profile_model(flags.config.config, model, options);
}

int run_profile(const ProfileFlags& flags, Communicator& ranks) {
  if (ranks.is_root() && !flags.report.empty()) engine::check_page(flags.report);
  const engine::Profile profile = measure(flags, ranks);
  if (!ranks.is_root()) return 0;
  if (flags.json != "-" && flags.trace != "-") write_text("-", engine::to_text(profile));
  if (!flags.json.empty()) write_text(flags.json, engine::to_json_text(profile));
  if (!flags.trace.empty()) write_text(flags.trace, profile.timeline.to_json());
  if (!flags.report.empty()) engine::write_report(profile, flags.report);
  return 0;
}

}  // namespace

void add_profile(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ProfileFlags>();
  CLI::App* command = app.add_subcommand(
      "profile",
      "where the time of a step goes, kernel by kernel, and how near each kernel is to its roof");
  command
      ->add_option("config", flags->config.config,
                   "TOML file (its training step), a model or folder of a run (inference), or the "
                   "network of a ladder: mlp, lenet72, charcnn, rnn")
      ->required()
      ->type_name("");
  action.files.reads(*command, "the config or model", flags->config.config,
                     engine::RunFolder::file_names());
  declare_sets(*command, flags->config.sets,
               "change a setting, as in train.batch=32; may be repeated");
  declare_data(*command, flags->config.data);
  command->add_option("--steps", flags->options.steps, "passes over the kernels at most (200)")
      ->check(CLI::Range(1, 1000000).description(""))
      ->type_name("N");
  command->add_option("--seconds", flags->options.seconds, "time for all passes, about (5)")
      ->check(range(0.0, 3600.0))
      ->type_name("S");
  command
      ->add_option("--batch", flags->options.batch,
                   "samples a step of a config (its own), or a call of a model (256) or a "
                   "ladder's network")
      ->check(CLI::Range(1, 65536).description(""))
      ->type_name("N");
  flags->config.run.declare(*command);
  declare_trace(*command, action, flags->trace,
                "write a timeline of a few steps here, for ui.perfetto.dev or chrome://tracing");
  declare_report(*command, action, flags->report);
  declare_json(*command, action, flags->json);
  command->footer(
      "Examples:\n"
      "  ridgeline profile configs/fashion-mlp.toml\n"
      "  ridgeline profile configs/fashion-mlp.toml --threads 1 --trace trace.json\n"
      "  ridgeline profile runs/fashion --batch 64 --json profile.json\n"
      "  ridgeline profile charcnn --device cuda --set run.precision=bf16\n"
      "  mpirun -n 4 ridgeline profile configs/bench/mlp-512-b3000.toml");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return with_ranks(action, [&](Communicator& ranks) { return run_profile(*flags, ranks); });
    };
  });
}

}  // namespace ridgeline::cli
