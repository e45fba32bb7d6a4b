#include "ridgeline/engine/stream/output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "ridgeline/core/descriptor.h"
#include "ridgeline/core/file.h"

namespace ridgeline::engine {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw_error(ErrorKind::io, "{}: cannot {}: {}", path.string(), what, std::strerror(errno));
}

void refuse_foreign(const std::filesystem::path& path, OutputFile::Recognise ours) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return;
  char head[64] = {};
  ssize_t got = 0;
  if (S_ISREG(status.st_mode)) {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file) fail(path, "read");
    got = ::pread(file.get(), head, sizeof head, 0);
    if (got == 0 || (got > 0 && ours({head, size_t(got)}))) return;
  }
  throw_error(ErrorKind::usage,
              "{}: is there already and not an earlier output; move it away or choose another",
              path.string());
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path, Recognise ours)
    : path_(path), stdout_(path == "-") {
  if (stdout_) return;
  struct stat status {};
  const bool there = ::stat(path.c_str(), &status) == 0;
  renames_ = !there || S_ISREG(status.st_mode);
  if (renames_ && there) {  // follows a link
    std::error_code ignored;
    const auto whole = std::filesystem::canonical(path, ignored);
    if (!ignored) path_ = whole;
  }
  part_ = path_;
  if (renames_) part_ += ".part";
  if (renames_) {
    refuse_foreign(path_, ours);
    refuse_foreign(part_, ours);
    reserve_part();
    return;
  }
  fd_ = ::open(part_.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd_ < 0) fail(part_, "open");
}

// Two processes that append to the same part would mix their lines, so the writer keeps it locked
// until it is renamed.
void OutputFile::reserve_part() {
  for (;;) {
    fd_ = ::open(part_.c_str(), O_WRONLY | O_CLOEXEC | O_CREAT | O_NOFOLLOW, 0666);
    if (fd_ < 0) fail(part_, "create");
    struct stat mine {
    }, there{};
    const bool locked = ::flock(fd_, LOCK_EX | LOCK_NB) == 0;
    const bool busy = !locked && errno == EWOULDBLOCK;  // otherwise the file system has no locks
    // The previous holder may have finished it meanwhile: then this is the complete file, which
    // must not be changed.
    const bool same = ::fstat(fd_, &mine) == 0 && ::stat(part_.c_str(), &there) == 0 &&
                      mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
    if (same && !busy && ::ftruncate(fd_, 0) == 0) return;
    const int error = errno;
    ::close(fd_);
    fd_ = -1;
    if (busy) {
      throw_error(ErrorKind::io,
                  "{}: another process is writing it; wait for it or choose another output",
                  part_.string());
    }
    errno = error;
    if (same) fail(part_, "empty");
  }
}

OutputFile::~OutputFile() {
  if (fd_ >= 0 && renames_ && !finished_ && !keep_) ::unlink(part_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

bool OutputFile::write(std::string_view text) {
  if (stdout_) return write_stdout(text);
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd_, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(part_, "write");
    text.remove_prefix(size_t(wrote));
  }
  return true;
}

void OutputFile::rewrite_begin(std::string_view bytes) {
  off_t at = 0;
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(fd_, bytes.data(), bytes.size(), at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(part_, "write");
    bytes.remove_prefix(size_t(wrote));
    at += wrote;
  }
}

void OutputFile::append_file(const std::filesystem::path& other) {
  const int from = ::open(other.c_str(), O_RDONLY | O_CLOEXEC);
  if (from < 0) fail(other, "open");
  std::vector<char> buffer(size_t{1} << 20);
  try {
    for (;;) {
      const ssize_t got = ::read(from, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(other, "read");
      if (got == 0 || !write({buffer.data(), size_t(got)})) break;
    }
  } catch (...) {
    ::close(from);
    throw;
  }
  ::close(from);
}

void OutputFile::finish() {
  finished_ = true;
  if (stdout_) return;
  keep_ = true;  // from now on the results are complete, whatever fails
  if (renames_ && ::fsync(fd_) != 0) fail(part_, "sync");
  if (renames_ && ::rename(part_.c_str(), path_.c_str()) != 0) {
    fail(path_, "put the new file in place");
  }
  const int closed = ::close(fd_);
  fd_ = -1;
  if (closed != 0) fail(path_, "close");
}

}  // namespace ridgeline::engine
