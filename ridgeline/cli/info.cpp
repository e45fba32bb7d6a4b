#include "ridgeline/engine/info.h"

#include <memory>

#include "ridgeline/cli/commands.h"

namespace ridgeline::cli {
namespace {

struct InfoFlags {
  RunFlags run;
  bool measure = false, list_kernels = false;
  std::string json;
};

int run_info(const InfoFlags& flags, Communicator& ranks) {
  if (flags.list_kernels) {
    if (ranks.is_root()) write_text("-", engine::kernel_list());
    return 0;
  }
  engine::RunConfig config;
  flags.run.apply(config);
  const engine::InfoReport report = engine::info(config, flags.measure, &ranks);
  if (!ranks.is_root()) return 0;
  if (flags.json != "-") write_text("-", report.text);
  write_text(flags.json, report.json);
  return 0;
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  auto flags = std::make_shared<InfoFlags>();
  CLI::App* command =
      app.add_subcommand("info", "this build, this machine and its measured ceilings");
  command->add_flag("--measure", flags->measure, "measure the ceilings again");
  command->add_flag("--list-kernels", flags->list_kernels,
                    "list every kernel: its precisions, the GPUs it needs and its other traits");
  flags->run.declare(*command);
  declare_json(*command, action, flags->json);
  command->footer(
      "Examples:\n"
      "  ridgeline info\n"
      "  ridgeline info --measure --threads 1\n"
      "  mpirun -n 2 ridgeline info      which MPI, and whether it is CUDA-aware");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return with_ranks(action, [&](Communicator& ranks) { return run_info(*flags, ranks); });
    };
  });
}

}  // namespace ridgeline::cli
