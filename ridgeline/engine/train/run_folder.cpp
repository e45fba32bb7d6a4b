#include "ridgeline/engine/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "ridgeline/core/error.h"
#include "ridgeline/core/file.h"

namespace ridgeline::engine {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLock = ".lock";

void write_text(int fd, std::string_view text, const fs::path& path) {
  write_all(fd, std::as_bytes(std::span(text)), path);
}

std::string holder(int fd) {
  char text[64] = {};
  const ssize_t got = ::pread(fd, text, sizeof text - 1, 0);
  const std::string pid(text, got > 0 ? strcspn(text, "\n") : 0);
  return pid.empty() ? "another process" : "process " + pid;
}

}  // namespace

RunFolder::RunFolder(fs::path folder, Use use) : folder_(std::move(folder)) {
  std::error_code ignored;
  if (use == Use::resume && !fs::exists(folder_, ignored)) throw_no_run();
  make_folder("--out", folder_);
  take_lock();
  try {
    const bool any =
        has_checkpoint() || fs::exists(model()) || fs::exists(metrics()) || fs::exists(config());
    if (use == Use::fresh && any) {
      throw_error(
          ErrorKind::usage,
          "--out {}: holds another run: continue it with --resume, replace it with --force, "
          "or choose another folder",
          folder_.string());
    }
    if (use == Use::resume && !any) throw_no_run();
    remove_leftovers();
    if (use == Use::force) remove_old_run();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

void RunFolder::throw_no_run() const {
  throw_error(ErrorKind::usage, "--resume: {} holds no run to continue; begin one without --resume",
              folder_.string());
}

RunFolder::~RunFolder() {
  if (metrics_ >= 0) ::close(metrics_);
  // The lock goes with the descriptor. The file stays: to remove it would let two others in, one
  // holding the old file and one the new.
  ::close(lock_);
}

// flock, so that a killed process holds nothing; the pid inside is for people.
void RunFolder::take_lock() {
  const fs::path path = folder_ / kLock;
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) {
    throw_error(ErrorKind::io, "--out {}: cannot write in this folder: {}", folder_.string(),
                std::strerror(errno));
  }
  try {
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        throw_error(ErrorKind::io,
                    "--out {}: {} is using this folder; wait for it or choose another",
                    folder_.string(), holder(lock_));
      }
      throw_error(ErrorKind::io, "--out {}: cannot lock: {}", folder_.string(),
                  std::strerror(errno));
    }
    if (::ftruncate(lock_, 0) != 0) {
      throw_error(ErrorKind::io, "{}: cannot write: {}", path.string(), std::strerror(errno));
    }
    write_text(lock_, std::to_string(::getpid()) + "\n", path);
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

void RunFolder::remove_leftovers() {
  std::error_code ignored;
  for (const fs::path& file : {model(), metrics(), config(), checkpoint(), previous()}) {
    fs::remove(file.string() + ".tmp", ignored);
  }
}

void RunFolder::remove_old_run() {
  std::error_code error;
  for (const fs::path& file : {checkpoint(), previous(), model(), metrics(), config()}) {
    fs::remove(file, error);
    if (error) {
      throw_error(ErrorKind::io, "{}: cannot remove: {}", file.string(), error.message());
    }
  }
  // Event files alone: whatever else lies there is not ours.
  for (const auto& entry : fs::directory_iterator(tensorboard(), error)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      fs::remove(entry.path(), error);
    }
  }
}

bool RunFolder::has_checkpoint() const {
  return fs::exists(checkpoint()) || fs::exists(previous());
}

void RunFolder::save_checkpoint(std::span<const std::byte> bytes) {
  std::error_code error;
  if (fs::exists(checkpoint())) {
    // A second name for the newest, so that at no instant there is none.
    const fs::path spare = previous().string() + ".tmp";
    fs::remove(spare, error);
    fs::create_hard_link(checkpoint(), spare, error);
    if (error) fs::copy_file(checkpoint(), spare, error);  // a file system without links
    if (!error) fs::rename(spare, previous(), error);
    if (error) {
      std::error_code ignored;
      fs::remove(spare, ignored);
      throw_error(ErrorKind::io, "{}: cannot keep the last checkpoint: {}", previous().string(),
                  error.message());
    }
  }
  write_file_atomic(checkpoint(), bytes);
}

nn::TensorFile RunFolder::load_checkpoint(const std::function<void(const nn::TensorFile&)>& check,
                                          const std::function<void(const std::string&)>& warn) {
  const auto load = [&](const fs::path& path) {
    nn::TensorFile file = nn::TensorFile::read(path);
    check(file);
    return file;
  };
  std::string fault = checkpoint().string() + ": missing";
  if (fs::exists(checkpoint())) {
    try {
      return load(checkpoint());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::model) throw;
      fault = error.what();
      if (!fs::exists(previous())) {
        throw_error(ErrorKind::model,
                    "{}; there is no checkpoint before it: begin anew with --force", fault);
      }
    }
  }
  nn::TensorFile file = load(previous());
  warn(fault + "; continuing from the checkpoint before it");
  std::error_code ignored;
  fs::remove(checkpoint(), ignored);
  return file;
}

void RunFolder::append_metrics(const std::string& line) {
  if (metrics_ < 0) {
    metrics_ = ::open(metrics().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (metrics_ < 0) {
      throw_error(ErrorKind::io, "{}: cannot open: {}", metrics().string(), std::strerror(errno));
    }
  }
  write_text(metrics_, line + "\n", metrics());
}

int64_t RunFolder::trim_metrics(int64_t step) {
  std::ifstream in(metrics());
  if (!in) return -1;
  int64_t evaluated = -1;
  std::string kept, line;
  while (std::getline(in, line)) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    const int64_t at = json["step"].get<int64_t>();
    if (at > step) continue;
    kept += line + "\n";
    if (json.value("event", nlohmann::json()) == "eval") evaluated = at;
  }
  in.close();
  write_file_atomic(metrics(), std::as_bytes(std::span(kept)));
  return evaluated;
}

}  // namespace ridgeline::engine
