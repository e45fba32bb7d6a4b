#include <fmt/core.h>

#include <memory>

#include "ridgeline/cli/command_tree.h"
#include "ridgeline/cli/commands.h"
#include "ridgeline/core/error.h"
#include "ridgeline/engine/info.h"

namespace ridgeline::cli {
namespace {

std::string quoted_for_shell(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Calls `visit` for the tool and every command below it.
template <typename Visit>
void walk(const CommandInfo& command, const Visit& visit) {
  visit(command);
  for (const CommandInfo& below : command.commands) walk(below, visit);
}

// Writes "path) words='--out --resume ...' ;;" for every command, for a case statement over the
// path.
std::string bash_script(const CommandInfo& tool) {
  std::string cases, paths;
  walk(tool, [&](const CommandInfo& command) {
    std::string words;
    for (const FlagInfo& flag : command.flags) words += flag.name + " ";
    for (const CommandInfo& below : command.commands) words += below.name() + " ";
    if (!words.empty()) words.pop_back();
    cases += fmt::format("    {}) words={} ;;\n", quoted_for_shell(command.path),
                         quoted_for_shell(words));
    if (!command.path.empty()) paths += "|" + quoted_for_shell(command.path);
  });
  return "# bash completion for ridgeline; made by `ridgeline completion bash`\n"
         "_ridgeline() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} path= next words= i\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    next=${path:+$path }${COMP_WORDS[i]}\n"
         "    case $next in\n"
         "      " +
         paths.substr(1) +
         ") path=$next ;;\n"
         "    esac\n"
         "  done\n"
         "  case $path in\n" +
         cases +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "}\n"
         "complete -o default -F _ridgeline ridgeline\n";
}

// Brackets and colons end parts of zsh's argument specifications.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_script(const CommandInfo& tool) {
  std::string cases;
  walk(tool, [&](const CommandInfo& command) {
    cases += fmt::format("    {})\n      _arguments -s", quoted_for_shell(command.path));
    for (const FlagInfo& flag : command.flags) {
      const std::string value =
          flag.value.empty() ? "" : fmt::format(":{}:_files", zsh_text(flag.value));
      cases += " \\\n        " + quoted_for_shell(fmt::format("*{}[{}]{}", flag.name,
                                                              zsh_text(flag.description), value));
    }
    std::string commands;
    for (const CommandInfo& below : command.commands) {
      commands += (commands.empty() ? "" : " ") + below.name();
    }
    cases += " \\\n        " +
             quoted_for_shell(commands.empty() ? "*:file:_files"
                                               : fmt::format("1:command:({})", commands)) +
             "\n      ;;\n";
  });
  std::string paths;
  walk(tool, [&](const CommandInfo& command) {
    if (!command.path.empty()) paths += "|" + quoted_for_shell(command.path);
  });
  return "#compdef ridgeline\n"
         "# zsh completion for ridgeline; made by `ridgeline completion zsh`\n"
         "_ridgeline() {\n"
         "  local path_= next_ depth=0 i\n"
         "  for ((i = 2; i < CURRENT; ++i)); do\n"
         "    next_=${path_:+$path_ }${words[i]}\n"
         "    case $next_ in\n"
         "      " +
         paths.substr(1) +
         ") path_=$next_; depth=$((i - 1)) ;;\n"
         "    esac\n"
         "  done\n"
         "  words=(\"${words[1]}\" \"${(@)words[depth+2,-1]}\")\n"
         "  CURRENT=$((CURRENT - depth))\n"
         "  case $path_ in\n" +
         cases +
         "  esac\n"
         "}\n"
         "_ridgeline \"$@\"\n";
}

std::string fish_script(const CommandInfo& tool) {
  std::string out =
      "# fish completion for ridgeline; made by `ridgeline completion fish`\n"
      "function __ridgeline_at\n"
      "    set -l words (commandline -opc)[2..]\n"
      "    set -l given (string match -v -- '-*' $words)\n"
      "    set -l want (string split -n ' ' -- $argv[1])\n"
      "    set -l n (count $want)\n"
      "    test $n -eq 0; and begin; test (count $given) -eq 0; return; end\n"
      "    test (count $given) -ge $n; and test \"$given[1..$n]\" = \"$want\"\n"
      "end\n";
  walk(tool, [&](const CommandInfo& command) {
    const std::string at = quoted_for_shell("__ridgeline_at '" + command.path + "'");
    for (const FlagInfo& flag : command.flags) {
      out += fmt::format("complete -c ridgeline -n {} -l {}{} -d {}\n", at, flag.name.substr(2),
                         flag.value.empty() ? "" : " -r", quoted_for_shell(flag.description));
    }
    for (const CommandInfo& below : command.commands) {
      out += fmt::format("complete -c ridgeline -n {} -f -a {} -d {}\n", at, below.name(),
                         quoted_for_shell(below.description));
    }
  });
  return out;
}

}  // namespace

std::string completion_script(const CommandInfo& tool, const std::string& shell) {
  if (shell == "bash") return bash_script(tool);
  if (shell == "zsh") return zsh_script(tool);
  if (shell == "fish") return fish_script(tool);
  throw_error(ErrorKind::usage, "completion: unknown shell '{}': use bash, zsh or fish", shell);
}

void add_completion(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "print the script that makes a shell complete our flags");
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->type_name("");
  command->footer(
      "Examples:\n"
      "  source <(ridgeline completion bash)\n"
      "  ridgeline completion fish > ~/.config/fish/completions/ridgeline.fish");
  command->callback([&app, shell, &action] {
    action.run = [&app, shell] {
      return write_text("-", completion_script(describe(app), *shell)), 0;
    };
  });

  // The build calls this command to install the page.
  CLI::App* man = app.add_subcommand("man", "print the manual page")->group("");
  man->callback([&app, &action] {
    action.run = [&app] { return write_text("-", man_page(describe(app), engine::version())), 0; };
  });
}

}  // namespace ridgeline::cli
