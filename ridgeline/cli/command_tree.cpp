#include "ridgeline/cli/command_tree.h"

namespace ridgeline::cli {
namespace {

CommandInfo describe_command(const CLI::App& app, const std::string& path) {
  CommandInfo info;
  info.path = path;
  info.description = app.get_description();
  info.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    const bool takes_value = option->get_items_expected_max() > 0;
    // A flag that does not name the kind of its value gets "VALUE".
    const std::string kind = option->get_type_name().empty() ? "VALUE" : option->get_type_name();
    for (const std::string& name : option->get_lnames()) {
      info.flags.push_back({"--" + name, takes_value ? kind : "", option->get_description()});
    }
    if (option->get_positional()) info.positionals.push_back(option->get_single_name());
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_group().empty()) continue;
    const std::string name = command->get_name();
    info.commands.push_back(describe_command(*command, path.empty() ? name : path + " " + name));
  }
  return info;
}

}  // namespace

CommandInfo describe(const CLI::App& app) { return describe_command(app, ""); }

}  // namespace ridgeline::cli
