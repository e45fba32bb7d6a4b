#include "ridgeline/data/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ridgeline/core/descriptor.h"

namespace ridgeline::data {
namespace fs = std::filesystem;

PartFile::PartFile(const fs::path& target) : target_(target), path_(target.string() + ".part") {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (fd_ < 0) fail("cannot be written");
  struct stat status {};
  if (::fstat(fd_, &status) != 0) {
    const int error = errno;
    ::close(fd_);  // the destructor does not run for a constructor that throws
    errno = error;
    fail("cannot be read");
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(fd_);
    throw_error(ErrorKind::io, "{}: is {}, not a plain file; remove it", path_.string(),
                kind_of_file(status.st_mode));
  }
  size_ = status.st_size;
}

PartFile::~PartFile() {
  ::close(fd_);
  if (size_ == 0 && !published_) ::unlink(path_.c_str());
}

void PartFile::fail(const char* what) const {
  throw_error(ErrorKind::io, "{}: {}: {}", path_.string(), what, std::strerror(errno));
}

void PartFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), size_);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write error");
    size_ += written;
    bytes = bytes.subspan(size_t(written));
  }
}

void PartFile::clear() {
  if (::ftruncate(fd_, 0) != 0) fail("cannot be emptied");
  size_ = 0;
}

void PartFile::publish() {
  if (::fsync(fd_) != 0) fail("cannot be synced");
  if (::rename(path_.c_str(), target_.c_str()) != 0) fail("cannot be renamed");
  published_ = true;
  const int folder = ::open(target_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = folder >= 0 && ::fsync(folder) == 0;
  const int error = errno;
  if (folder >= 0) ::close(folder);
  errno = error;
  if (!synced) fail("its folder cannot be synced");
}

FolderLock::FolderLock(const fs::path& folder) {
  fd_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) {
    throw_error(ErrorKind::io, "{}: cannot be opened: {}", folder.string(), std::strerror(errno));
  }
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  ::close(fd_);
  if (error == EWOULDBLOCK) {
    throw_error(ErrorKind::io, "{}: another process is downloading into this folder; wait for it",
                folder.string());
  }
  throw_error(ErrorKind::io, "{}: cannot be locked: {}", folder.string(), std::strerror(error));
}

FolderLock::~FolderLock() { ::close(fd_); }

}  // namespace ridgeline::data
