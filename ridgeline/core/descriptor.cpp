#include "ridgeline/core/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ridgeline {
namespace {

void refuse_special(mode_t mode, const std::filesystem::path& path, ErrorKind kind) {
  if (S_ISREG(mode)) return;
  throw_error(kind, "{}: is {}, not a plain file; give a file", path.string(), kind_of_file(mode));
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

// close() is not retried after EINTR: on Linux the descriptor is already released then.
bool Descriptor::close() { return ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR; }

Descriptor open_regular(const std::filesystem::path& path, ErrorKind kind) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw_errno(kind, path, "open");
  refuse_special(status.st_mode, path, kind);
  // Another file may have replaced it since the check, so O_NONBLOCK avoids waiting on a pipe.
  Descriptor file;
  do {
    file = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  } while (!file && errno == EINTR);
  if (!file) throw_errno(kind, path, "open");
  if (::fstat(file.get(), &status) != 0) throw_errno(kind, path, "examine");
  refuse_special(status.st_mode, path, kind);
  return file;
}

const char* kind_of_file(mode_t mode) {
  if (S_ISREG(mode)) return "a file";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

void throw_errno(ErrorKind kind, const std::filesystem::path& path, const char* doing) {
  const int error = errno;  // before anything else can change it
  const char* help = "";
  if (error == ENOSPC || error == EDQUOT) help = "; free some space or write elsewhere";
  if (error == EACCES || error == EROFS || error == EPERM) help = "; choose a path you may use";
  if (error == ENOENT) help = "; check the path";
  throw_error(kind, "{}: cannot {}: {}{}", path.string(), doing, std::strerror(error), help);
}

}  // namespace ridgeline
