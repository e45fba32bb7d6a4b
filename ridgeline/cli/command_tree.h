#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// The commands and flags of the tool as plain data, for what is generated from them: shell
// completion and the manual page.
namespace ridgeline::cli {

struct FlagInfo {
  std::string name;         // "--out"
  std::string value;        // "DIR"; empty: takes none
  std::string description;  // one line
};

struct CommandInfo {
  std::string path;  // "bench gemm"; empty: the tool itself
  std::string description;
  std::string footer;                    // examples
  std::vector<std::string> positionals;  // "config"
  std::vector<FlagInfo> flags;
  std::vector<CommandInfo> commands;

  std::string name() const { return path.substr(path.rfind(' ') + 1); }
};

// Hidden commands and flags are left out.
CommandInfo describe(const CLI::App& app);

// The script that makes a shell complete commands, flags and files: bash, zsh or fish. Throws usage
// for any other shell.
std::string completion_script(const CommandInfo& tool, const std::string& shell);

// ridgeline(1) in roff.
std::string man_page(const CommandInfo& tool, const std::string& version);

}  // namespace ridgeline::cli
