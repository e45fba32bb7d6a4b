#include "ridgeline/core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

namespace ridgeline {
namespace {

// Calls `f` until a signal no longer interrupts it.
template <typename F>
auto retry(F&& f) {
  for (;;) {
    const auto result = f();
    if (result >= 0 || errno != EINTR) return result;
  }
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

  // Network file systems report a failed write only here. Not retried: after EINTR the descriptor
  // is gone on Linux.
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd) == 0 || errno == EINTR;
  }

 private:
  int fd_;
};

// The last system call's error, in words. Taken before anything else can change errno.
[[noreturn]] void throw_errno(ErrorKind kind, const std::filesystem::path& path,
                              const char* doing) {
  const int error = errno;
  const char* help = "";
  if (error == ENOSPC || error == EDQUOT) help = "; free some space or write elsewhere";
  if (error == EACCES || error == EROFS || error == EPERM) help = "; choose a path you may use";
  throw_error(kind, "{}: cannot {}: {}{}", path.string(), doing, std::strerror(error), help);
}

// Removes the file unless told that it is good.
class Unfinished {
 public:
  explicit Unfinished(const std::filesystem::path& path) : path_(path) {}
  ~Unfinished() {
    if (!kept_) ::unlink(path_.c_str());
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  void keep() { kept_ = true; }

 private:
  const std::filesystem::path& path_;
  bool kept_ = false;
};

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

struct Target {
  std::filesystem::path path;  // with links followed
  bool special = false;        // a device or a pipe: a rename would replace the thing itself
};

Target examine_target(const std::filesystem::path& path) {
  if (!path.has_filename()) {
    throw_error(ErrorKind::io, "'{}': is no file name", path.string());
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {path, false};  // not there: to be made
  if (S_ISDIR(status.st_mode)) {
    throw_error(ErrorKind::io, "{}: is a folder; give a file name", path.string());
  }
  if (!S_ISREG(status.st_mode)) return {path, true};
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return {path, false};
  const auto whole = std::filesystem::canonical(path, error);
  return {error ? path : whole, false};
}

void write_in_place(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  Descriptor file(retry([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC); }));
  if (!file) throw_errno(ErrorKind::io, path, "open");
  write_all(file.get(), bytes, path);
  if (!file.close()) throw_errno(ErrorKind::io, path, "close");
}

}  // namespace

void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  constexpr size_t kMost = size_t{1} << 30;  // one write() takes less than 2 GiB
  while (!bytes.empty()) {
    const size_t part = std::min(bytes.size(), kMost);
    const ssize_t written = retry([&] { return ::write(fd, bytes.data(), part); });
    if (written < 0) throw_errno(ErrorKind::io, path, "write");
    bytes = bytes.subspan(size_t(written));
  }
}

std::vector<std::byte> read_file(const std::filesystem::path& path, ErrorKind kind, size_t limit) {
  // Non-blocking, or opening a pipe would wait for its writer; plain files do not care.
  const Descriptor file(
      retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (!file) throw_errno(kind, path, "open");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_errno(kind, path, "examine");
  if (S_ISDIR(status.st_mode)) throw_error(kind, "{}: is a folder, not a file", path.string());
  if (!S_ISREG(status.st_mode)) throw_error(kind, "{}: is not a plain file", path.string());
  const size_t size = size_t(status.st_size);
  if (size > limit) {
    throw_error(kind, "{}: has {} bytes, more than the {} allowed", path.string(), size, limit);
  }
  std::vector<std::byte> bytes(size);
  for (size_t done = 0; done < size;) {
    const size_t part = std::min(size - done, size_t{1} << 30);
    const ssize_t got = retry([&] { return ::read(file.get(), bytes.data() + done, part); });
    if (got < 0) throw_errno(kind, path, "read");
    if (got == 0) {
      throw_error(kind, "{}: ended at byte {} of {}: it shrank while it was read", path.string(),
                  done, size);
    }
    done += size_t(got);
  }
  return bytes;
}

void write_file_atomic(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const Target target = examine_target(path);
  if (target.special) return write_in_place(target.path, bytes);
  std::filesystem::path beside = target.path;
  beside += ".tmp";
  Descriptor file(retry([&] {
    return ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  }));
  if (!file) throw_errno(ErrorKind::io, beside, "create");
  Unfinished unfinished(beside);
  write_all(file.get(), bytes, beside);
  if (retry([&] { return ::fsync(file.get()); }) != 0) throw_errno(ErrorKind::io, beside, "sync");
  if (!file.close()) throw_errno(ErrorKind::io, beside, "close");
  if (::rename(beside.c_str(), target.path.c_str()) != 0) {
    throw_errno(ErrorKind::io, target.path, "put the new file in place");
  }
  unfinished.keep();

  const std::filesystem::path folder = folder_of(target.path);
  const Descriptor parent(
      retry([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!parent) throw_errno(ErrorKind::io, folder, "open");
  // Some file systems cannot sync a folder; there the rename is as safe as it gets.
  if (retry([&] { return ::fsync(parent.get()); }) != 0 && errno != EINVAL && errno != ENOTSUP) {
    throw_errno(ErrorKind::io, folder, "sync");
  }
}

void make_folder(std::string_view what, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && std::filesystem::is_directory(folder, error)) return;
  throw_error(ErrorKind::io, "{} {}: cannot make this folder: {}; choose another", what,
              folder.string(), error ? error.message() : "a file is in its place");
}

void check_writable(const std::filesystem::path& path) {
  const Target target = examine_target(path);
  const std::filesystem::path asked = target.special ? target.path : folder_of(target.path);
  if (::access(asked.c_str(), W_OK) != 0) throw_errno(ErrorKind::io, path, "write");
}

bool write_stdout(std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = retry([&] { return ::write(STDOUT_FILENO, text.data(), text.size()); });
    if (wrote < 0 && errno == EPIPE) return false;
    if (wrote < 0) throw_errno(ErrorKind::io, "stdout", "write");
    text.remove_prefix(size_t(wrote));
  }
  return true;
}

void write_stderr(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t wrote = retry([&] { return ::write(STDERR_FILENO, text.data(), text.size()); });
    if (wrote <= 0) return;
    text.remove_prefix(size_t(wrote));
  }
}

}  // namespace ridgeline
