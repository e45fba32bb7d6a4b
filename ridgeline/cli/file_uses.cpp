#include "ridgeline/cli/file_uses.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "ridgeline/core/descriptor.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/file_identity.h"
#include "ridgeline/core/result_mark.h"
#include "ridgeline/core/temporary.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::cli {
namespace {

namespace fs = std::filesystem;

// Returns the first bytes of a regular file; nothing for anything else.
std::string head_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string head(4096, '\0');
  const ssize_t got = file ? ::read(file.get(), head.data(), head.size()) : 0;
  head.resize(size_t(std::max<ssize_t>(0, got)));
  return head;
}

// A device or a pipe is written to, but never replaced.
bool is_special(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

std::vector<fs::path> files_of(const std::string& path, const std::vector<std::string>& inside) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path};
  std::vector<fs::path> files;
  for (const std::string& name : inside) files.push_back(fs::path(path) / name);
  return files;
}

}  // namespace

Recognise begins_with(std::vector<std::string> beginnings) {
  return [beginnings = std::move(beginnings)](std::string_view head) {
    return std::ranges::any_of(
        beginnings, [&](const std::string& beginning) { return head.starts_with(beginning); });
  };
}

Recognise is_json() { return has_json_mark; }
Recognise is_trace() {
  return begins_with({"{\"displayTimeUnit\":\"ns\",\"otherData\":{\"producer\":\"ridgeline\"}"});
}
Recognise is_svg() { return has_svg_mark; }
Recognise is_report() {
  return [](std::string_view head) {
    return head.starts_with("<!doctype html>") &&
           head.find("<meta name=\"generator\" content=\"ridgeline\">") != std::string_view::npos;
  };
}
// nn::to_safetensors pads after the first brace of the header, which follows its length.
Recognise is_model_file() {
  return [](std::string_view head) { return head.size() > 16 && head.substr(8, 8) == "{       "; };
}
Recognise is_never_ours() { return begins_with({}); }

void FileUses::reads(const CLI::App& command, std::string flag, const std::string& path,
                     std::vector<std::string> inside) {
  const auto paths = [&path] { return std::vector<std::string>{path}; };
  inputs_.push_back({&command, std::move(flag), paths, std::move(inside)});
}

void FileUses::reads(const CLI::App& command, std::string flag,
                     std::function<std::vector<std::string>()> paths,
                     std::vector<std::string> inside) {
  inputs_.push_back({&command, std::move(flag), std::move(paths), std::move(inside)});
}

void FileUses::writes(const CLI::App& command, std::string flag, const std::string& path,
                      Recognise ours) {
  outputs_.push_back({&command, std::move(flag), [&path, ours = std::move(ours)] {
                        return std::vector<File>{{path, ours, false}};
                      }});
}

void FileUses::writes(const CLI::App& command, std::string flag, Files files) {
  outputs_.push_back({&command, std::move(flag), std::move(files)});
}

void FileUses::check() const {
  std::map<FileIdentity, std::string> read, written;  // with their flags
  for (const Input& input : inputs_) {
    if (!input.command->parsed()) continue;
    for (const std::string& path : input.paths()) {
      if (path.empty()) continue;
      for (const fs::path& file : files_of(path, input.inside)) {
        if (const auto identity = identify(file)) read.try_emplace(*identity, input.flag);
      }
    }
  }
  for (const Output& output : outputs_) {
    if (!output.command->parsed()) continue;
    for (const File& file : output.files()) {
      if (file.path.empty() || file.path == "-" || is_special(file.path)) continue;
      const std::string what = fmt::format("{} {}", output.flag, printable(file.path));
      if (const auto identity = identify(file.path)) {
        if (const auto found = read.find(*identity); found != read.end()) {
          throw_error(ErrorKind::usage, "{}: is read as {}; choose another file", what,
                      found->second);
        }
        // The files of one flag may be one file for a moment: a checkpoint is linked before it is
        // replaced.
        const auto [other, fresh] = written.try_emplace(*identity, output.flag);
        if (!fresh && other->second != output.flag) {
          throw_error(ErrorKind::usage, "{}: is written by {}, too; choose another file", what,
                      other->second);
        }
      }
      if (!file.ours) continue;
      if (const std::string head = head_of(file.path); !head.empty() && !file.ours(head)) {
        throw_error(ErrorKind::usage,
                    "{}: is there already and not an earlier result of {}; move it away or choose "
                    "another file",
                    what, output.flag);
      }
      if (file.in_folder && !fs::exists(fs::path(file.path).parent_path())) continue;
      check_writable(file.path);
      remove_leftovers(file.path);
    }
  }
}

}  // namespace ridgeline::cli
