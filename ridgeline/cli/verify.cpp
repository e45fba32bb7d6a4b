#include "ridgeline/engine/verify/verify.h"

#include <filesystem>
#include <memory>
#include <optional>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/temporary.h"

namespace ridgeline::cli {
namespace {

struct VerifyFlags {
  ConfigFlags config;
  std::string json, part;
  std::vector<std::string> precisions;
  int ranks = 1;
  int64_t steps = 0;
  double reference_seconds = 10;
};

// Returns the same command for ranks that only make their part.
std::vector<std::string> part_command(const VerifyFlags& flags, const std::string& part) {
  std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe").string(), "verify",
                                 flags.config.config, "--part", part};
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  for (const std::string& set : flags.config.sets) add("--set", set);
  for (const std::string& precision : flags.precisions) add("--precision", precision);
  for (const std::string& kernel : flags.config.run.kernels) add("--kernels", kernel);
  add("--data", flags.config.data);
  add("--device", flags.config.run.device);
  add("--steps", std::to_string(flags.steps));
  if (flags.config.run.threads != 0) add("--threads", std::to_string(flags.config.run.threads));
  if (flags.config.run.no_tune) words.push_back("--no-tune");
  if (flags.config.run.deterministic) words.push_back("--deterministic");
  return words;
}

int run_verify(const VerifyFlags& flags, Communicator& ranks) {
  const engine::Config config = flags.config.load();
  engine::VerifyOptions options;
  options.data = flags.config.data;
  options.steps = flags.steps;
  options.reference_seconds = flags.reference_seconds;
  options.ranks = &ranks;
  if (!flags.precisions.empty()) options.precisions.clear();
  for (const std::string& text : flags.precisions) {
    options.precisions.push_back(parse_precision(text));
  }
  if (!flags.part.empty()) {
    engine::write_part(config, options, flags.part);
    return 0;
  }
  std::optional<ScratchFolder> scratch;
  if (flags.ranks > 1 && ranks.size() == 1) {
    scratch.emplace("ridgeline-verify");
    options.part = scratch->path() / "part.safetensors";
    options.part_ranks = flags.ranks;
    engine::launch_ranks(flags.ranks, part_command(flags, options.part.string()));
  }
  const engine::VerifyReport report = engine::verify(config, options);
  if (!ranks.is_root()) return 0;
  if (flags.json != "-") write_text("-", engine::to_text(report));
  write_text(flags.json, engine::to_json_text(report));
  return report.good() ? 0 : exit_code(ErrorKind::numeric);
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* command = app.add_subcommand(
      "verify", "train the same on CPU, GPU and several ranks, and compare tensor by tensor");
  flags->config.declare(*command, action);
  command->add_option("--ranks", flags->ranks, "launch a run over this many ranks with mpirun too")
      ->check(CLI::Range(1, 4096).description(""))
      ->type_name("N");
  command->add_option("--steps", flags->steps, "steps to train (default: one epoch)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40).description(""))
      ->type_name("K");
  command
      ->add_option("--reference-seconds", flags->reference_seconds,
                   "for the slow reference kernels, which make as many steps as fit (default: 10)")
      ->check(range(0.0, 1e9))
      ->type_name("S");
  command
      ->add_option(
          "--precision", flags->precisions,
          "fp64, fp32, bf16, fp16 or, of a GPU against fp32 on the CPU, tf32 and fp32x3; may be "
          "repeated (default: fp64 and fp32)")
      ->allow_extra_args(false)
      ->type_name("NAME");
  command->add_option("--part", flags->part)->group("");  // what --ranks launches
  action.files.writes(*command, "--part", flags->part, is_never_ours());
  declare_json(*command, action, flags->json);
  command->footer(
      "Errors are relative to the CPU's fast kernels on one rank. Exit code 4 when one is beyond "
      "what\n"
      "rounding explains.\n"
      "Examples:\n"
      "  ridgeline verify configs/mnist-sigmoid.toml --ranks 4\n"
      "  ridgeline verify configs/bench/mlp-512-b3000.toml --steps 20 --precision fp64\n"
      "  mpirun -n 4 ridgeline verify configs/mnist-sigmoid.toml --json verify.json");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return with_ranks(action, [&](Communicator& ranks) { return run_verify(*flags, ranks); });
    };
  });
}

}  // namespace ridgeline::cli
