#include "ridgeline/engine/ladder.h"

#include <memory>

#include "ridgeline/cli/commands.h"

namespace ridgeline::cli {
namespace {

struct Flags {
  std::string name, json, svg;
  RunFlags run;
  double seconds = 1;
};

int run(const Flags& flags) {
  check_destinations({flags.json, flags.svg});
  engine::LadderOptions options;
  flags.run.apply(options.run);
  options.seconds = flags.seconds;
  const engine::Ladder& ladder = engine::find_ladder(flags.name);
  if (flags.json != "-" && flags.svg != "-") {
    write_text("-", engine::ladder_head());
    options.each = [](const engine::RungResult& rung) { write_text("-", engine::to_line(rung)); };
  }
  const engine::LadderResult result = engine::climb(ladder, options);
  if (!flags.json.empty()) write_text(flags.json, engine::to_json_text(result));
  if (!flags.svg.empty()) write_text(flags.svg, engine::to_svg(result));
  return 0;
}

}  // namespace

void add_ladder(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand(
      "ladder", "a network's optimisations one by one, each checked, then timed");
  command
      ->add_option("network", flags->name,
                   "which one: mlp (training), lenet72, charcnn, rnn (inference)")
      ->required()
      ->type_name("");
  command->add_option("--seconds", flags->seconds, "time for each rung")
      ->check(CLI::Range(0.0, 3600.0).description(""))
      ->type_name("S");
  flags->run.declare(*command);
  command->add_option("--svg", flags->svg, "draw the staircase here")->type_name("FILE");
  declare_json(*command, flags->json);
  command->footer(
      "Examples:\n  ridgeline ladder mlp\n  ridgeline ladder lenet72 --device cuda --svg "
      "lenet72.svg\n  ridgeline ladder mlp --svg mlp.svg --json mlp.json");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace ridgeline::cli
