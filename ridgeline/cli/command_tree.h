#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// The commands and flags of the tool as plain data, from which shell completion and the manual page
// are generated.
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

// Leaves out hidden commands and flags.
CommandInfo describe(const CLI::App& app);

// Returns the script for completion of commands, flags and files: bash, zsh or fish. Throws
// Error(usage) for any other shell.
std::string completion_script(const CommandInfo& tool, const std::string& shell);

// Returns ridgeline(1) in roff.
std::string man_page(const CommandInfo& tool, const std::string& version);

}  // namespace ridgeline::cli
