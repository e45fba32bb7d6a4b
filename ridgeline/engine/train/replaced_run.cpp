#include "ridgeline/engine/train/replaced_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "ridgeline/core/error.h"
#include "ridgeline/core/file.h"

namespace ridgeline::engine {
namespace fs = std::filesystem;
namespace {

// The folder is renamed in this order.
constexpr const char* kMoving = ".ridgeline-moving-";      // the old run is being moved into it
constexpr const char* kReplaced = ".ridgeline-replaced-";  // all of the old run is here
constexpr const char* kRemoved = ".ridgeline-removed-";    // the new run has succeeded

void move_file(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (!error) fs::rename(from, to, error);
  if (error) {
    throw_error(ErrorKind::io, "{}: cannot move to {}: {}", from.string(), to.string(),
                error.message());
  }
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (!at->is_directory(error) || at->is_symlink(error)) {
      files.push_back(at->path().lexically_relative(folder));
    }
  }
  return files;
}

// Removes a folder and its subfolders if they hold no files.
void remove_folders(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> folders{folder};
  for (const auto& each : fs::directory_iterator(folder, ignored)) folders.push_back(each.path());
  for (auto at = folders.rbegin(); at != folders.rend(); ++at) ::rmdir(at->c_str());
}

void put_back(const fs::path& folder, const fs::path& aside) {
  for (const fs::path& file : files_in(aside)) {
    std::error_code error;
    if (fs::exists(fs::symlink_status(folder / file, error))) {
      throw_error(ErrorKind::io,
                  "{}: is in the place of a file of the run before; move it away, and {} there",
                  (folder / file).string(), (aside / file).string());
    }
    move_file(aside / file, folder / file);
  }
  remove_folders(aside);
}

void remove_files(const fs::path& folder, const std::vector<fs::path>& files) {
  std::error_code ignored;
  for (const fs::path& file : files) fs::remove(folder / file, ignored);
}

// Returns the folders that a killed process left.
std::vector<fs::path> left_in(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> left;
  for (const auto& each : fs::directory_iterator(folder, error)) {
    const std::string name = each.path().filename().string();
    const bool ours =
        std::ranges::any_of(std::initializer_list<const char*>{kMoving, kReplaced, kRemoved},
                            [&](const char* prefix) { return name.starts_with(prefix); });
    if (ours && each.is_directory(error) && !each.is_symlink(error)) left.push_back(each.path());
  }
  return left;
}

// Removes the files of the new run, and restores the old one.
void undo(const fs::path& folder, const fs::path& aside, const ReplacedRun::ListFiles& list_files) {
  const std::vector<fs::path> written = list_files();
  remove_files(folder, written);
  for (const fs::path& file : written) {
    // The folder may be one that the old run did not have.
    const fs::path inside = file.parent_path();
    std::error_code error;
    if (!inside.empty() && !fs::exists(aside / inside, error)) ::rmdir((folder / inside).c_str());
  }
  put_back(folder, aside);
}

}  // namespace

ReplacedRun::ReplacedRun(fs::path folder, ListFiles list_files)
    : folder_(std::move(folder)), list_files_(std::move(list_files)) {
  const std::vector<fs::path> files = list_files_();
  if (files.empty()) return;
  std::string pattern = (folder_ / (std::string(kMoving) + "XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw_error(ErrorKind::io, "{}: cannot make a folder to move the old run to: {}",
                folder_.string(), std::strerror(errno));
  }
  aside_ = pattern;
  try {
    for (const fs::path& file : files) move_file(folder_ / file, aside_ / file);
    rename_to(kReplaced);
  } catch (...) {
    put_back(folder_, aside_);
    throw;
  }
}

ReplacedRun::~ReplacedRun() {
  if (aside_.empty()) return;
  try {
    undo(folder_, aside_, list_files_);
  } catch (const std::exception& error) {
    write_stderr(
        fmt::format("ridgeline: warning: the run before was not put back: {}\n", error.what()));
  }
}

void ReplacedRun::rename_to(const char* prefix) {
  const std::string name = aside_.filename().string();
  const fs::path to = folder_ / (prefix + name.substr(name.rfind('-') + 1));
  move_file(aside_, to);
  aside_ = to;
}

void ReplacedRun::remove() noexcept {
  if (aside_.empty()) return;
  try {
    rename_to(kRemoved);
    remove_files(aside_, files_in(aside_));
    remove_folders(aside_);
  } catch (const std::exception& error) {
    write_stderr(
        fmt::format("ridgeline: warning: the run before was not removed: {}\n", error.what()));
  }
  aside_.clear();
}

bool ReplacedRun::is_left_in(const fs::path& folder) { return !left_in(folder).empty(); }

void ReplacedRun::recover(const fs::path& folder, const ListFiles& list_files) {
  for (const fs::path& aside : left_in(folder)) {
    const std::string name = aside.filename().string();
    if (name.starts_with(kMoving)) put_back(folder, aside);
    if (name.starts_with(kReplaced)) undo(folder, aside, list_files);
    if (name.starts_with(kRemoved)) {
      remove_files(aside, files_in(aside));
      remove_folders(aside);
    }
  }
}

}  // namespace ridgeline::engine
