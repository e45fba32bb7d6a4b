#include "ridgeline/engine/data_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include "ridgeline/core/file.h"
#include "ridgeline/data/locate.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/engine/signals.h"

namespace ridgeline::engine {
namespace {

const char* state_name(data::FileState state) {
  switch (state) {
    case data::FileState::ok:
      return "good";
    case data::FileState::repacked:
      return "good (repacked)";
    case data::FileState::missing:
      return "missing";
    case data::FileState::differs:
      return "differs";
    case data::FileState::damaged:
      return "damaged";
  }
  return "?";
}

}  // namespace

std::string list_sets(const std::filesystem::path& data_dir) {
  std::string text;
  for (const data::SetInfo& set : data::known_sets()) {
    std::string where;
    try {
      where = data::find_set(set, data_dir).string();
    } catch (const Error&) {
      where = "not here: ridgeline data get " + set.name;
    }
    text += fmt::format("{:<16} {}; {} classes; {}\n{:<16} {}\n", set.name, set.title, set.classes,
                        set.licence, "", where);
  }
  return text;
}

std::string check_set(const std::string& name, const std::filesystem::path& data_dir) {
  const data::CheckReport report = data::check(data::set_info(name), data_dir);
  std::string text = fmt::format("{} in {}\n", report.set, report.folder.string());
  std::string bad;
  for (const data::FileCheck& file : report.files) {
    const bool say = file.state != data::FileState::ok && !file.note.empty();
    text += fmt::format("{:<30} {}{}{}\n", file.name, state_name(file.state), say ? ": " : "",
                        say ? file.note : "");
    if (file.good()) continue;
    if (!bad.empty()) bad += ", ";
    bad += file.name;
  }
  if (!report.good()) {
    write_stderr(text);
    throw_error(ErrorKind::data, "{}: {} not as published: remove and run ridgeline data get {}",
                report.folder.string(), bad, name);
  }
  return text;
}

GetResult get_set(const std::string& name, const std::filesystem::path& dest,
                  data::GetOptions options) {
  const data::SetInfo& set = data::set_info(name);
  const SignalGuard signals;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  double shown = -1;
  const Clock clock;
  options.progress = [&](const data::Progress& at) {
    const bool done = at.total > 0 && at.done >= at.total;
    if (terminal && (done || clock.seconds() - shown > 0.1)) {
      shown = clock.seconds();
      write_stderr(fmt::format("\r\033[K{}  {} of {}B{}", at.file, engineering(double(at.done)),
                               engineering(double(at.total)), done ? "\n" : ""));
    }
    return SignalGuard::caught() == 0;
  };
  try {
    const auto folder = data::get(set, dest, options);
    return {fmt::format("{}: in {}, checked\n", set.name, folder.string()), 0};
  } catch (const Error& error) {
    if (SignalGuard::caught() == 0) throw;
    if (terminal && shown >= 0) write_stderr("\n");
    return {error.what(), SignalGuard::caught()};
  }
}

}  // namespace ridgeline::engine
