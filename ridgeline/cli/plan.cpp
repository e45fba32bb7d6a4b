#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/engine/explain.h"

namespace ridgeline::cli {
namespace {

struct Flags {
  ConfigFlags config;
  std::string json;
};

int run(const Flags& flags) {
  check_destinations({flags.json});
  const engine::PlanReport report = engine::explain_plan(flags.config.load(), flags.config.data);
  if (flags.json != "-") write_text("-", report.text);
  write_text(flags.json, report.json);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("plan", "which rows cover a network's training step, why, and its limit");
  flags->config.declare(*command);
  declare_json(*command, flags->json);
  command->footer(
      "Examples:\n"
      "  ridgeline plan configs/fashion-mlp.toml\n"
      "  ridgeline plan configs/fashion-mlp.toml --set train.batch=32 --threads 1 --json "
      "plan.json");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace ridgeline::cli
