#include "ridgeline/engine/ladder/ladder.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/temporary.h"
#include "ridgeline/engine/verify/verify.h"

namespace ridgeline::cli {
namespace {

struct LadderFlags {
  std::string name, json, svg, rung;
  RunFlags run;
  double seconds = 1;
  int ranks = 0;
  int64_t width = 0;
};

// Runs the same command on ranks for one rung; returns the JSON of their root.
std::string run_rung_on_ranks(const LadderFlags& flags, const engine::Rung& rung, int ranks) {
  const ScratchFolder scratch("ridgeline-ladder");
  const std::filesystem::path file = scratch.path() / "rung.json";
  std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe").string(),
                                 "ladder",
                                 flags.name,
                                 "--rung",
                                 rung.name,
                                 "--seconds",
                                 fmt::format("{}", flags.seconds),
                                 "--json",
                                 file.string()};
  if (!flags.run.device.empty()) words.insert(words.end(), {"--device", flags.run.device});
  if (flags.run.threads != 0) {
    words.insert(words.end(), {"--threads", fmt::format("{}", flags.run.threads)});
  }
  for (const std::string& kernel : flags.run.kernels)
    words.insert(words.end(), {"--kernels", kernel});
  if (flags.run.no_tune) words.emplace_back("--no-tune");
  if (flags.run.deterministic) words.emplace_back("--deterministic");
  engine::launch_ranks(ranks, words);
  return read_text_file(file);
}

int run_ladder(const LadderFlags& flags, Communicator& ranks) {
  engine::LadderOptions options;
  flags.run.apply(options.run);
  options.seconds = flags.seconds;
  options.rank_count = flags.ranks;
  options.rung = flags.rung;
  if (ranks.size() > 1) {
    if (flags.rung.empty()) {
      throw_error(ErrorKind::usage,
                  "ladder: start one process; it starts the ranks its rungs need");
    }
    options.ranks = &ranks;
  }
  options.launch = [&](const engine::Rung& rung, int count) {
    return run_rung_on_ranks(flags, rung, count);
  };
  if (flags.width > 0 && flags.name != "mlp") {
    throw_error(ErrorKind::usage, "--width is for the ladder mlp, not {}", flags.name);
  }
  const engine::Ladder ladder =
      flags.width > 0 ? engine::mlp_levels(flags.width) : engine::find_ladder(flags.name);
  // Ranks that a ladder has started return their JSON to it, which prints the table.
  const bool tells = ranks.is_root() && (ranks.size() == 1 || flags.json.empty());
  if (tells && flags.json != "-" && flags.svg != "-") {
    write_text("-", engine::ladder_head());
    options.each = [](const engine::RungResult& rung) { write_text("-", engine::to_line(rung)); };
  }
  const engine::LadderResult result = engine::climb(ladder, options);
  if (!ranks.is_root()) return 0;
  if (!flags.json.empty()) write_text(flags.json, engine::to_json_text(result));
  if (!flags.svg.empty()) write_text(flags.svg, engine::to_svg(result));
  return 0;
}

}  // namespace

void add_ladder(CLI::App& app, Action& action) {
  auto flags = std::make_shared<LadderFlags>();
  CLI::App* command = app.add_subcommand(
      "ladder", "a network's optimisations one by one, each checked, then timed");
  command
      ->add_option("network", flags->name,
                   "which one: mlp (training), lenet72, charcnn, rnn (inference)")
      ->required()
      ->type_name("");
  command->add_option("--seconds", flags->seconds, "time for each rung")
      ->check(range(0.0, 3600.0))
      ->type_name("S");
  command
      ->add_option("--ranks", flags->ranks,
                   "processes of the rungs with several, started by mpirun (default: one a GPU, or "
                   "one a core up to four)")
      ->check(CLI::Range(2, 4096).description(""))
      ->type_name("N");
  command
      ->add_option("--width", flags->width,
                   "mlp on a GPU: the products of 784-N-N-N-10 at batch 32 in fp16, level by level")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}).description(""))
      ->type_name("N");
  command->add_option("--rung", flags->rung, "climb this one alone")->type_name("NAME");
  flags->run.declare(*command);
  declare_svg(*command, action, flags->svg, "draw the staircase here");
  declare_json(*command, action, flags->json);
  command->footer(
      "Examples:\n  ridgeline ladder mlp\n  ridgeline ladder lenet72 --device cuda --svg "
      "lenet72.svg\n  ridgeline ladder mlp --width 512 --device cuda\n  ridgeline ladder mlp --svg "
      "mlp.svg --json mlp.json");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return with_ranks(action, [&](Communicator& ranks) { return run_ladder(*flags, ranks); });
    };
  });
}

}  // namespace ridgeline::cli
