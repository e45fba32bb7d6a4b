#include <fmt/core.h>

#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/data/download.h"
#include "ridgeline/data/locate.h"
#include "ridgeline/engine/data_command.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct DataFlags {
  std::string name, data;
  data::GetOptions get;
};

}  // namespace

void add_data(CLI::App& app, Action& action) {
  auto flags = std::make_shared<DataFlags>();
  CLI::App* group =
      app.add_subcommand("data", "data sets: list, check and get named ones, describe your own");
  group->require_subcommand(1);

  CLI::App* list = group->add_subcommand("list", "the known sets and where they were found");
  declare_data(*list, flags->data);
  list->callback([flags, &action] {
    action.run = [flags] { return write_text("-", engine::list_sets(flags->data)), 0; };
  });

  CLI::App* check = group->add_subcommand("check", "compare a set's files with their checksums");
  check->add_option("name", flags->name, "named set")->required()->type_name("");
  declare_data(*check, flags->data);
  check->callback([flags, &action] {
    action.run = [flags] {
      return write_text("-", engine::check_set(flags->name, flags->data)), 0;
    };
  });

  CLI::App* get = group->add_subcommand("get", "download a set, or the rest of it, and check it");
  get->add_option("name", flags->name, "named set")->required()->type_name("");
  get->add_option("--data", flags->data, "folder to put it in (default: the user's cache)")
      ->type_name("DIR");
  get->add_option("--mirror", flags->get.mirror, "base URL that serves SET/FILE")->type_name("URL");
  get->callback([flags, &action] {
    action.run = [flags] {
      const auto result = engine::get_set(flags->name, flags->data, flags->get);
      if (result.stopped_by == 0) return write_text("-", result.text), 0;
      engine::Progress().line(result.text);
      return 128 + result.stopped_by;
    };
  });
  add_data_describe(*group, action);
  group->footer(
      "Examples:\n"
      "  ridgeline data list\n"
      "  ridgeline data check fashion-mnist\n"
      "  ridgeline data get mnist\n"
      "  ridgeline data describe table.csv --target price --write-config net.toml");
}

}  // namespace ridgeline::cli
