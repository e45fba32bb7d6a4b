#include "ridgeline/core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "ridgeline/core/descriptor.h"
#include "ridgeline/core/host_memory.h"
#include "ridgeline/core/temporary.h"

namespace ridgeline {
namespace {

// Calls `f` again while it fails with EINTR.
template <typename F>
auto retry(F&& f) {
  for (;;) {
    const auto result = f();
    if (result >= 0 || errno != EINTR) return result;
  }
}

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
  if (::stat(path.c_str(), &status) != 0) return {path, false};  // does not exist yet
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
  const Descriptor file = open_regular(path, kind);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_errno(kind, path, "examine");
  const size_t size = size_t(status.st_size);
  if (size > limit) {
    throw_error(kind, "{}: has {} bytes, more than the {} allowed", path.string(), size, limit);
  }
  require_host_memory(size, "use a smaller file");
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

std::string read_text_file(const std::filesystem::path& path, ErrorKind kind, size_t limit) {
  const std::vector<std::byte> bytes = read_file(path, kind, limit);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void write_file_atomic(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const Target target = examine_target(path);
  if (target.special) return write_in_place(target.path, bytes);
  TemporaryFile beside(target.path);
  write_all(beside.fd(), bytes, beside.path());
  beside.publish();
}

void make_folder(std::string_view what, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && std::filesystem::is_directory(folder, error)) return;
  throw_error(ErrorKind::io, "{} {}: cannot make this folder: {}; choose another", what,
              folder.string(), error ? error.message() : "a file is in its place");
}

MadeFolder::MadeFolder(std::string_view what, const std::filesystem::path& folder) {
  std::error_code ignored;
  for (auto each = std::filesystem::absolute(folder);
       !std::filesystem::exists(each, ignored) && each.has_relative_path();
       each = each.parent_path()) {
    made_.push_back(each);
  }
  make_folder(what, folder);
}

MadeFolder::~MadeFolder() {
  for (const auto& each : made_) ::rmdir(each.c_str());
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
