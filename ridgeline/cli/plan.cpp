#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/plan/batch_advice.h"
#include "ridgeline/engine/plan/explain.h"
#include "ridgeline/engine/plan/scaling.h"

namespace ridgeline::cli {
namespace {

struct PlanFlags {
  ConfigFlags config;
  std::string json, network;
  std::vector<int> ranks;
  bool batch_advice = false, all = false, source = false;
};

int run_plan(const PlanFlags& flags, Communicator& ranks) {
  if (ranks.size() > 1 && (!flags.ranks.empty() || flags.batch_advice)) {
    throw_error(ErrorKind::usage, "plan {}: start a single process, without mpirun",
                flags.batch_advice ? "--batch-advice" : "--ranks");
  }
  if (!flags.ranks.empty()) {
    if (flags.network.empty()) {
      throw_error(ErrorKind::usage, "--ranks needs --network, as in --network 25GB/s,2us");
    }
    const engine::Scaling scaling = engine::predict_scaling(
        flags.config.load(), flags.config.data, flags.ranks, prof::parse_network(flags.network));
    if (flags.json != "-") write_text("-", engine::to_text(scaling));
    write_text(flags.json, engine::to_json_text(scaling));
    return 0;
  }
  if (flags.batch_advice) {
    const engine::Config config = flags.config.load();
    const engine::BatchAdvice advice = engine::advise_batch(
        config, std::make_shared<data::DataSet>(engine::load_data(config, flags.config.data)));
    if (flags.json != "-") write_text("-", engine::to_text(advice));
    write_text(flags.json, engine::to_json_text(advice));
    return 0;
  }
  if (flags.source) {
    const std::string source = engine::plan_source(flags.config.load(), flags.config.data);
    if (ranks.is_root()) write_text("-", source);
    return 0;
  }
  const engine::PlanReport report =
      engine::explain_plan(flags.config.load(), flags.config.data, flags.all, &ranks);
  if (!ranks.is_root()) return 0;
  if (flags.json != "-") write_text("-", report.text);
  write_text(flags.json, report.json);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command = app.add_subcommand(
      "plan", "which kernels cover a network's training step, why, and its limit");
  flags->config.declare(*command, action);
  command->add_flag("--all", flags->all,
                    "also the program, every candidate with its time, and why others were refused");
  command->add_flag("--source", flags->source,
                    "print the source of the GPU kernel that is generated for the step instead");
  CLI::Option* advice = command->add_flag(
      "--batch-advice", flags->batch_advice,
      "measure the step over growing batches instead; names the fastest and the largest that fits");
  command
      ->add_option("--ranks", flags->ranks,
                   "predict the step over so many ranks instead, as in 2,4,8; needs --network")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20).description(""))
      ->excludes(advice)
      ->type_name("N,...");
  command
      ->add_option("--network", flags->network, "rate and latency between ranks, as in 25GB/s,2us")
      ->type_name("RATE,LATENCY");
  declare_json(*command, action, flags->json);
  command->footer(
      "Examples:\n"
      "  ridgeline plan configs/fashion-mlp.toml\n"
      "  ridgeline plan configs/fashion-mlp.toml --all\n"
      "  ridgeline plan configs/fashion-mlp.toml --source\n"
      "  ridgeline plan configs/fashion-mlp.toml --batch-advice\n"
      "  ridgeline plan configs/fashion-mlp.toml --ranks 2,4,8,64 --network 25GB/s,2us\n"
      "  mpirun -n 4 ridgeline plan configs/fashion-mlp.toml\n"
      "  ridgeline plan configs/fashion-mlp.toml --set train.batch=32 --threads 1 --json "
      "plan.json");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return with_ranks(action, [&](Communicator& ranks) { return run_plan(*flags, ranks); });
    };
  });
}

}  // namespace ridgeline::cli
