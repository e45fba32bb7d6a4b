#include "ridgeline/engine/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/core/temporary.h"
#include "ridgeline/engine/written_files.h"

namespace ridgeline::engine {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLock = ".lock";

void write_text(int fd, std::string_view text, const fs::path& path) {
  write_all(fd, std::as_bytes(std::span(text)), path);
}

std::string read_lock(int fd) {
  char text[64];
  const ssize_t got = ::pread(fd, text, sizeof text, 0);
  return {text, size_t(std::max<ssize_t>(got, 0))};
}

// A pipe or a device instead of one of our files would block a run or lose its output.
void refuse_special(int fd, const fs::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw_errno(ErrorKind::io, path, "examine");
  if (S_ISREG(status.st_mode)) return;
  throw_error(ErrorKind::io, "{}: is {}, not a plain file; remove it or choose another folder",
              path.string(), kind_of_file(status.st_mode));
}

std::string holder(int fd) {
  const std::string text = read_lock(fd), pid = text.substr(0, text.find('\n'));
  return pid.empty() ? "another process" : "process " + pid;
}

// Our lock files hold a number and a line end, or nothing.
bool is_own_lock(int fd) {
  const std::string text = read_lock(fd);
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return text.empty() || (digits > 0 && (text.substr(digits) == "\n" || digits == text.size()));
}

// True also for a dangling link.
bool is_there(const fs::path& file) {
  std::error_code error;
  return fs::exists(fs::symlink_status(file, error));
}

// Decides by the contents of a file of this name in the folder of a run.
bool is_written(const fs::path& file) {
  if (file.extension() == ".toml") return is_ridgeline_config(file);
  return file.extension() == ".jsonl" ? is_ridgeline_metrics(file) : is_ridgeline_tensor_file(file);
}

// Keeps a damaged file under a name that nothing reads or replaces.
void set_aside(const fs::path& file) {
  const fs::path base = file.parent_path() / file.stem();
  fs::path to = base.string() + ".damaged" + file.extension().string();
  for (int i = 2; is_there(to); ++i) {
    to = fmt::format("{}.damaged-{}{}", base.string(), i, file.extension().string());
  }
  std::error_code error;
  fs::rename(file, to, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    throw_error(ErrorKind::io, "{}: cannot rename to {}: {}", file.string(), to.string(),
                error.message());
  }
}

// The reason why a checkpoint is skipped.
class Damage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::vector<std::byte> read_checkpoint(const fs::path& path) {
  try {
    return read_file(path, ErrorKind::io);
  } catch (const Error& error) {
    throw_error(error.kind(),
                "{}: the checkpoint stays as it is; make it readable, or move it away",
                error.what());
  }
}

nn::TensorFile load_undamaged(const fs::path& path, const RunFolder::Check& check) {
  std::vector<std::byte> bytes = read_checkpoint(path);
  std::optional<nn::TensorFile> file;
  try {
    file = nn::TensorFile::parse(std::move(bytes), path.string());
    check(*file);
  } catch (const Error& error) {
    // If the checksums match, the bytes are not damaged: another version wrote them.
    const bool confirmed = file && file->has_checksums();
    if (confirmed || error.kind() != ErrorKind::model) throw;
    throw Damage(error.what());
  }
  return std::move(*file);
}

}  // namespace

RunFolder::RunFolder(fs::path folder, Use use) : folder_(std::move(folder)), use_(use) {
  std::error_code ignored;
  if (use == Use::resume && !fs::exists(folder_, ignored)) throw_no_run();
  if (use == Use::force) refuse_foreign(run_files());
  made_.emplace("--out", folder_);
  try {
    take_lock();
    ReplacedRun::recover(folder_, [this] { return written_files(); });
    const auto files = run_files();
    if (use == Use::resume && std::ranges::none_of(files, is_there)) throw_no_run();
    if (use == Use::fresh && std::ranges::any_of(files, is_written)) {
      throw_error(
          ErrorKind::usage,
          "--out {}: holds another run: continue it with --resume, replace it with --force, "
          "or choose another folder",
          folder_.string());
    }
    // Checkpoints to resume from are checked when they are loaded, and the user's config may stay.
    refuse_foreign(use == Use::resume ? std::vector{model(), metrics()} : files);
    remove_leftovers();
  } catch (...) {
    leave();
    throw;
  }
}

// Removes a lock that a run has not used while holding it, which take_lock() of others notices.
void RunFolder::leave() {
  std::error_code ignored;
  if (unused_lock_) fs::remove(folder_ / kLock, ignored);
  if (lock_ >= 0) ::close(lock_);
}

std::vector<fs::path> RunFolder::run_files() const {
  return {checkpoint(), previous(), model(), metrics(), config()};
}

void RunFolder::refuse_foreign(const std::vector<fs::path>& files) const {
  for (const fs::path& file : files) {
    if (!is_there(file) || is_written(file)) continue;
    throw_error(
        ErrorKind::usage,
        "--out {}: ridgeline did not write the {} there, or it is damaged: move it away, or "
        "choose another folder",
        folder_.string(), file.filename().string());
  }
}

std::vector<fs::path> RunFolder::written_files() const {
  std::vector<fs::path> files;
  for (const fs::path& file : run_files()) {
    if (is_written(file)) files.push_back(file.filename());
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(tensorboard(), error)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.") &&
        is_ridgeline_event_file(entry.path())) {
      files.push_back(entry.path().lexically_relative(folder_));
    }
  }
  return files;
}

bool RunFolder::begin(const std::string& toml) {
  unused_lock_ = false;
  if (use_ == Use::force) {
    replaced_ = std::make_unique<ReplacedRun>(folder_, [this] { return written_files(); });
  }
  if (is_there(config()) && !is_written(config())) return false;
  const std::string text = marked_config(toml);
  write_file_atomic(config(), std::as_bytes(std::span(text)));
  return true;
}

// The new run has produced its first output.
void RunFolder::remove_replaced() {
  if (replaced_) replaced_->remove();
  replaced_.reset();
}

const std::vector<std::string>& RunFolder::file_names() {
  static const std::vector<std::string> kNames{"model.safetensors", "checkpoint.safetensors",
                                               "checkpoint.prev.safetensors", "metrics.jsonl",
                                               "config.toml"};
  return kNames;
}

bool RunFolder::holds_run(const fs::path& folder) {
  return ReplacedRun::is_left_in(folder) ||
         std::ranges::any_of(file_names(),
                             [&](const std::string& name) { return is_there(folder / name); });
}

void RunFolder::throw_no_run() const {
  throw_error(ErrorKind::usage, "--resume: {} holds no run to continue; begin one without --resume",
              folder_.string());
}

RunFolder::~RunFolder() {
  if (metrics_ >= 0) ::close(metrics_);
  replaced_.reset();  // while holding the lock
  leave();
}

// Uses flock, so that a killed process holds no lock; the pid inside is for people.
void RunFolder::take_lock() {
  const fs::path path = folder_ / kLock;
  const bool is_new = !is_there(path);
  for (;;) {
    lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (lock_ < 0) {
      throw_error(ErrorKind::io, "--out {}: cannot write in this folder: {}", folder_.string(),
                  std::strerror(errno));
    }
    refuse_special(lock_, path);
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        throw_error(ErrorKind::io,
                    "--out {}: {} is using this folder; wait for it or choose another",
                    folder_.string(), holder(lock_));
      }
      throw_error(ErrorKind::io, "--out {}: cannot lock: {}", folder_.string(),
                  std::strerror(errno));
    }
    // The file may be one that a run has removed since it was opened here.
    struct stat held {
    }, there{};
    if (::fstat(lock_, &held) == 0 && ::lstat(path.c_str(), &there) == 0 &&
        held.st_ino == there.st_ino && held.st_dev == there.st_dev) {
      break;
    }
    ::close(std::exchange(lock_, -1));
  }
  if (!is_own_lock(lock_)) {
    throw_error(ErrorKind::usage,
                "--out {}: ridgeline did not write the {} there: move it away, or choose another "
                "folder",
                folder_.string(), kLock);
  }
  unused_lock_ = is_new;
  if (::ftruncate(lock_, 0) != 0) {
    throw_error(ErrorKind::io, "{}: cannot write: {}", path.string(), std::strerror(errno));
  }
  write_text(lock_, std::to_string(::getpid()) + "\n", path);
}

void RunFolder::remove_leftovers() {
  for (const fs::path& file : run_files()) {
    ridgeline::remove_leftovers(file);
  }
}

bool RunFolder::has_checkpoint() const { return is_there(checkpoint()) || is_there(previous()); }

void RunFolder::save_checkpoint(std::span<const std::byte> bytes) {
  if (std::exchange(newest_damaged_, false)) {
    set_aside(checkpoint());
  } else if (is_there(checkpoint())) {
    if (is_there(previous()) && !is_ridgeline_tensor_file(previous())) set_aside(previous());
    // Makes a second link to the newest, so that a checkpoint exists at every instant.
    std::error_code error;
    const fs::path spare = temporary_name(previous());
    fs::create_hard_link(checkpoint(), spare, error);
    if (error) fs::copy_file(checkpoint(), spare, error);  // for a file system without links
    if (!error) fs::rename(spare, previous(), error);
    std::error_code ignored;
    fs::remove(spare, ignored);  // still exists if both names were one file before
    if (error) {
      throw_error(ErrorKind::io, "{}: cannot keep the last checkpoint: {}", previous().string(),
                  error.message());
    }
  }
  write_file_atomic(checkpoint(), bytes);
  remove_replaced();
}

nn::TensorFile RunFolder::load_checkpoint(const Check& check, const Warn& warn) {
  if (!is_there(checkpoint())) {
    return load_previous(checkpoint().string() + ": missing", check, warn);
  }
  try {
    return load_undamaged(checkpoint(), check);
  } catch (const Damage& damage) {
    return load_previous(damage.what(), check, warn);
  }
}

nn::TensorFile RunFolder::load_previous(const std::string& fault, const Check& check,
                                        const Warn& warn) {
  if (newest_damaged_ || !is_there(previous())) {
    throw_error(ErrorKind::model,
                "{}; there is no checkpoint before it: begin anew with --force, or elsewhere",
                fault);
  }
  newest_damaged_ = true;
  try {
    nn::TensorFile file = load_undamaged(previous(), check);
    warn(fault + "; continuing from the checkpoint before it");
    return file;
  } catch (const Damage& damage) {
    throw_error(ErrorKind::model,
                "{}; the checkpoint before it, too: {}: begin anew with --force, or elsewhere",
                fault, damage.what());
  }
}

void RunFolder::append_metrics(const std::string& line) {
  if (metrics_ < 0) {
    metrics_ =
        ::open(metrics().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
    if (metrics_ < 0) {
      throw_error(ErrorKind::io, "{}: cannot open: {}", metrics().string(), std::strerror(errno));
    }
    refuse_special(metrics_, metrics());
  }
  write_text(metrics_, line + "\n", metrics());
  remove_replaced();
}

RunFolder::LastEvaluations RunFolder::trim_metrics(int64_t step) {
  if (!fs::exists(metrics())) return {};
  std::istringstream in(read_text_file(metrics(), ErrorKind::io));
  LastEvaluations evaluated;
  std::string kept, line;
  while (std::getline(in, line)) {
    const nlohmann::json json = parse_json(line);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    const int64_t at = json["step"].get<int64_t>();
    if (at > step) continue;
    kept += line + "\n";
    const auto event = json.value("event", nlohmann::json());
    if (event == "eval") evaluated.test = at;
    if (event == "validation") evaluated.validation = at;
  }
  write_file_atomic(metrics(), std::as_bytes(std::span(kept)));
  return evaluated;
}

}  // namespace ridgeline::engine
