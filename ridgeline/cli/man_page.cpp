#include <fmt/core.h>

#include <sstream>

#include "ridgeline/cli/command_tree.h"

namespace ridgeline::cli {
namespace {

// Escapes backslashes and hyphens, which are special in roff, and a dot or a quote at the beginning
// of a line.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '-') out += '\\';
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    out += c;
  }
  return out;
}

std::string as_printed(const std::string& text) { return ".nf\n" + roff(text) + "\n.fi\n"; }

void write_flags(std::ostringstream& out, const CommandInfo& command) {
  for (const FlagInfo& flag : command.flags) {
    out << fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(flag.name),
                       flag.value.empty() ? "" : " \\fI" + roff(flag.value) + "\\fR",
                       roff(flag.description));
  }
}

void write_command(std::ostringstream& out, const CommandInfo& command) {
  std::string usage = roff("ridgeline " + command.path);
  for (const std::string& name : command.positionals) usage += " \\fI" + roff(name) + "\\fR";
  out << ".SS " << usage << "\n" << roff(command.description) << "\n";
  write_flags(out, command);
  if (!command.footer.empty()) out << ".PP\n" << as_printed(command.footer);
  for (const CommandInfo& below : command.commands) write_command(out, below);
}

}  // namespace

std::string man_page(const CommandInfo& tool, const std::string& version) {
  std::ostringstream out;
  out << fmt::format(".TH RIDGELINE 1 \"\" \"ridgeline {}\" \"User Commands\"\n", roff(version))
      << ".SH NAME\nridgeline \\- train and serve small neural networks\n"
      << ".SH SYNOPSIS\n\\fBridgeline\\fR \\fICOMMAND\\fR [\\fIFLAGS\\fR]\n"
      << ".SH DESCRIPTION\n"
      << roff(tool.description) << "\n.SH OPTIONS\n";
  write_flags(out, tool);
  out << ".SH COMMANDS\n";
  for (const CommandInfo& command : tool.commands) write_command(out, command);
  out << ".SH EXIT STATUS\n" << as_printed(tool.footer);
  return out.str();
}

}  // namespace ridgeline::cli
