#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <sstream>

#include "ridgeline/cli/commands.h"
#include "ridgeline/cli/out_of_memory.h"
#include "ridgeline/core/error.h"
#include "ridgeline/core/failure.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/engine/info.h"
#include "ridgeline/engine/setting_names.h"

namespace ridgeline::cli {
namespace {

int fail(int code, const std::string& message) {
  write_stderr("ridgeline: " + one_line(message) + "\n");
  return code;
}

// Returns the deepest command that the arguments name.
const CLI::App& deepest(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : deepest(*chosen.front());
}

std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  std::string near = nearest(word, views);
  constexpr size_t kShort = 5;  // --out
  for (size_t i = 0; i < names.size() && near.empty(); ++i) {
    const bool alike = word.starts_with(names[i]) || names[i].starts_with(word);
    if (alike && std::min(word.size(), names[i].size()) >= kShort) near = names[i];
  }
  return near.empty() ? "see --help" : fmt::format("did you mean {}?", near);
}

// Returns the value of a flag: in the same word, or in the next one.
std::string value_given(const std::string& flag, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with(flag + "=")) return word.substr(flag.size() + 1);
    if (word == flag && i + 1 < argc && argv[i + 1][0] != '-') return argv[i + 1];
  }
  return "VALUE";
}

// Returns the flag for which a word that stands alone was probably meant: --set KEY VALUE, or a
// file.
std::string flag_meant(const CLI::App& command, const std::string& word, int argc, char** argv) {
  for (int i = 3; i < argc; ++i) {
    const std::string key = argv[i - 1];
    if (word == argv[i] && std::string_view("--set") == argv[i - 2] &&
        key.find('=') == std::string::npos) {
      return fmt::format("did you mean --set {}={}?", key, word);
    }
  }
  for (const char* flag : {"--input", "--output", "--onnx", "--out"}) {
    const CLI::Option* option = command.get_option_no_throw(flag);
    if (option != nullptr && option->empty()) return fmt::format("did you mean {} {}?", flag, word);
  }
  return "see --help";
}

// "unknown flag --treads: did you mean --threads?"
std::string unknown(const CLI::App& app, int argc, char** argv) {
  const CLI::App& command = deepest(app);
  const std::vector<std::string> left = app.remaining(true);
  std::string word = left.empty() ? "" : left.front();
  std::vector<std::string> names;
  if (word.starts_with("-")) {
    word = word.substr(0, word.find('='));
    const size_t begin = std::min(word.find_first_not_of('-'), word.size());
    const std::string setting = engine::setting_meant(std::string_view(word).substr(begin));
    if (!setting.empty() && command.get_option_no_throw("--set") != nullptr) {
      return fmt::format("unknown flag {}: settings are given as --set {}={}", word, setting,
                         value_given(word, argc, argv));
    }
    for (const CLI::Option* option : command.get_options()) {
      if (option->get_group().empty()) continue;  // hidden
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    return fmt::format("unknown flag {}: {}", word, suggestion(word, names));
  }
  if (word == "help" || word == "version") {
    const std::string name = word == "help" && &command != &app ? command.get_name() + " " : "";
    return fmt::format("unknown command '{0}': did you mean ridgeline {1}--{0}?", word, name);
  }
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  if (names.empty()) {
    return fmt::format("unexpected argument '{}': {}", word, flag_meant(command, word, argc, argv));
  }
  return fmt::format("unknown command '{}': {}", word, suggestion(word, names));
}

int run(int argc, char** argv) {
  CLI::App app("Trains and serves small neural networks at the limit of the hardware.",
               "ridgeline");
  app.require_subcommand(1);
  app.set_version_flag("--version", "ridgeline " + engine::version(), "print the version");
  app.get_formatter()->column_width(28);
  Action action;
  add_train(app, action);
  add_eval(app, action);
  add_infer(app, action);
  add_serve(app, action);
  add_import(app, action);
  add_export(app, action);
  add_sweep(app, action);
  add_verify(app, action);
  add_plan(app, action);
  add_profile(app, action);
  add_ladder(app, action);
  add_bench(app, action);
  add_data(app, action);
  add_info(app, action);
  add_completion(app, action);
  app.footer(
      "`ridgeline COMMAND --help` has every flag and examples.\n"
      "Exit codes: 0 good, 2 usage or config, 3 data or model file, 4 loss not a number, 5 disk,\n"
      "6 device, 7 communication, 8 slower than before (bench --compare), 129/130/143\n"
      "stopped by a signal.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    std::ostringstream text;
    app.exit(asked, text, text);
    write_stdout(text.str());
    return 0;
  } catch (const CLI::ParseError& error) {
    // A misspelt word is reported as "a command is required" or "extras": name the word.
    if (!app.remaining(true).empty())
      return fail(exit_code(ErrorKind::usage), unknown(app, argc, argv));
    // A command that has others below it is answered with their list.
    const CLI::App& command = deepest(app);
    if (command.get_require_subcommand_min() > 0) {
      write_stderr(command.help() + "\n");
      return fail(exit_code(ErrorKind::usage), "a command is required: give one of those above");
    }
    return fail(exit_code(ErrorKind::usage), std::string(error.what()) + ": see --help");
  }
  return action.run();
}

// A file opened while stdout or stderr is closed would get its descriptor and receive its output.
// The replacement for stdout is read-only, so that results are not lost silently.
void reserve_standard_descriptors() {
  for (const int fd : {0, 1, 2}) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY);
  }
}

// Handles exceptions that nothing can catch: one line and an exit code, as for any other failure.
[[noreturn]] void end_now() {
  Failure failure{1, "unexpected end"};
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    failure = failure_of(error);
  } catch (...) {
  }
  std::_Exit(fail(failure.exit_code, failure.message));
}

}  // namespace
}  // namespace ridgeline::cli

int main(int argc, char** argv) {
  // A closed pipe or a file-size limit should be a reported error, not a signal that kills the
  // process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::set_terminate(ridgeline::cli::end_now);
  ridgeline::cli::prepare_for_lack_of_memory();
  ridgeline::cli::reserve_standard_descriptors();
  try {
    return ridgeline::cli::run(argc, argv);
  } catch (const std::exception& error) {
    const ridgeline::Failure failure = ridgeline::failure_of(error);
    return ridgeline::cli::fail(failure.exit_code, failure.message);
  }
}
