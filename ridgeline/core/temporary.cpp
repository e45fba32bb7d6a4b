#include "ridgeline/core/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDigits = 16;
constexpr std::string_view kEnding = ".tmp";

uint64_t random_number() {
  uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) == ssize_t(sizeof number)) return number;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t(now.tv_nsec) << 32) ^ uint64_t(::getpid());
}

// Returns the part of the name before the digits. A name has at most 255 bytes, so a long one is
// cut.
std::string beginning(const fs::path& target) {
  constexpr size_t kMost = 255 - 1 - kDigits - kEnding.size();
  return target.filename().string().substr(0, kMost) + ".";
}

bool is_temporary_of(const std::string& name, const std::string& beginning) {
  if (name.size() != beginning.size() + kDigits + kEnding.size()) return false;
  const std::string_view digits = std::string_view(name).substr(beginning.size(), kDigits);
  return name.starts_with(beginning) && name.ends_with(kEnding) &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

int sync(int fd) {
  for (;;) {
    const int result = ::fsync(fd);
    if (result == 0 || errno != EINTR) return result;
  }
}

bool still_there(int fd, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

}  // namespace

fs::path temporary_name(const fs::path& target) {
  for (;;) {
    fs::path path = target;
    path.replace_filename(beginning(target) + fmt::format("{:016x}", random_number()) +
                          std::string(kEnding));
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return path;
  }
}

TemporaryFile::TemporaryFile(const fs::path& target, mode_t mode) : target_(target) {
  for (;;) {
    path_ = temporary_name(target);
    file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (!file_ && (errno == EEXIST || errno == EINTR)) continue;
    if (!file_) throw_errno(ErrorKind::io, path_, "create");
    // The lock tells remove_leftovers() that the file is in use. That function may have locked it
    // already; a file system without locks fails both times.
    ::flock(file_.get(), LOCK_EX | LOCK_NB);
    if (still_there(file_.get(), path_)) return;
  }
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void TemporaryFile::publish(bool lasting) {
  if (lasting && sync(file_.get()) != 0) throw_errno(ErrorKind::io, path_, "sync");
  if (::rename(path_.c_str(), target_.c_str()) != 0) {
    throw_errno(ErrorKind::io, target_, "put the new file in place");
  }
  path_.clear();
  if (!file_.close()) throw_errno(ErrorKind::io, target_, "close");
  if (lasting) sync_folder_of(target_);
}

void remove_leftovers(const fs::path& target) noexcept try {
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const std::string front = beginning(target);
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    if (!is_temporary_of(at->path().filename().string(), front)) continue;
    const fs::path path = at->path();
    const Descriptor file(
        ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) continue;
    if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) continue;
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (still_there(file.get(), path)) ::unlink(path.c_str());
  }
} catch (...) {
  // A file that cannot be examined is kept.
}

void sync_folder_of(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) throw_errno(ErrorKind::io, folder, "open");
  // Some file systems cannot sync a folder; the rename is then as safe as it can be.
  if (sync(opened.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    throw_errno(ErrorKind::io, folder, "sync");
  }
}

ScratchFolder::ScratchFolder(std::string_view name) {
  const char* place = std::getenv("TMPDIR");
  const fs::path parent = place != nullptr && *place != '\0' ? place : "/tmp";
  std::string path = (parent / fmt::format("{}-XXXXXX", name)).string();
  if (::mkdtemp(path.data()) == nullptr) {
    throw_errno(ErrorKind::io, parent, "make a folder for temporary files in");
  }
  path_ = path;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace ridgeline
