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
#include "ridgeline/core/temporary.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::cli {
namespace {

namespace fs = std::filesystem;

// The first bytes of a regular file that has any; of anything else, nothing.
std::string head_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string head(4096, '\0');
  const ssize_t got = file ? ::read(file.get(), head.data(), head.size()) : 0;
  head.resize(size_t(std::max<ssize_t>(0, got)));
  return head;
}

// A device or a pipe is written to, and replaced by nobody.
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

// Lines of data in JSON begin otherwise: their objects stand on one line.
Recognise is_json() { return begins_with({"{\n", "[\n", "[]\n", "null\n"}); }
Recognise is_trace() { return begins_with({"{\"displayTimeUnit\""}); }
Recognise is_svg() { return begins_with({"<svg "}); }

Recognise is_any_text() {
  return [](std::string_view head) {
    return head.find('\0') == std::string_view::npos && !head.starts_with("\x1f\x8b");
  };
}

void FileUses::reads(const CLI::App& command, std::string flag, const std::string& path,
                     std::vector<std::string> inside) {
  inputs_.push_back({&command, std::move(flag), &path, std::move(inside)});
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
  std::map<FileIdentity, std::string> read, written;  // and by which flag
  for (const Input& input : inputs_) {
    if (!input.command->parsed() || input.path->empty()) continue;
    for (const fs::path& file : files_of(*input.path, input.inside)) {
      if (const auto identity = identify(file)) read.try_emplace(*identity, input.flag);
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
        // The files of one flag may be one for a moment: a checkpoint is linked before it is
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
