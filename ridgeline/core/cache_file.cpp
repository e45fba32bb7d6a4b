#include "ridgeline/core/cache_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <span>

#include "ridgeline/core/file.h"
#include "ridgeline/core/temporary.h"

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{16} << 20;

fs::path absolute_path_in(const char* variable) {
  const char* value = std::getenv(variable);
  const fs::path path = value == nullptr ? fs::path() : fs::path(value);
  return path.is_absolute() ? path : fs::path();  // the XDG specification ignores others
}

bool own(const struct stat& status) { return status.st_uid == ::geteuid(); }

bool own_folder(const fs::path& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && own(status);
}

// Makes the folder so that only this user may enter it; folders above it get the usual permissions.
bool make_private_folder(const fs::path& folder) {
  std::error_code ignored;
  fs::create_directories(folder.parent_path(), ignored);
  ::mkdir(folder.c_str(), 0700);
  return own_folder(folder);
}

}  // namespace

fs::path cache_folder() {
  if (const fs::path cache = absolute_path_in("XDG_CACHE_HOME"); !cache.empty()) {
    return cache / "ridgeline";
  }
  if (const fs::path home = absolute_path_in("HOME"); !home.empty()) {
    return home / ".cache" / "ridgeline";
  }
  return {};
}

fs::path cache_file(std::string_view name) {
  const fs::path folder = cache_folder();
  return folder.empty() ? folder : folder / name;
}

std::optional<std::string> read_cache_file(const fs::path& file) noexcept try {
  if (file.empty() || !own_folder(file.parent_path())) return std::nullopt;
  struct stat status {};
  if (::lstat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!opened || ::fstat(opened.get(), &status) != 0) return std::nullopt;
  if (!S_ISREG(status.st_mode) || !own(status) || size_t(status.st_size) > kMostBytes) {
    return std::nullopt;
  }
  std::string text(size_t(status.st_size), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t got = ::read(opened.get(), text.data() + done, text.size() - done);
    if (got <= 0) return std::nullopt;
    done += size_t(got);
  }
  return text;
} catch (...) {
  return std::nullopt;
}

void write_cache_file(const fs::path& file, std::string_view text) noexcept try {
  if (file.empty() || text.size() > kMostBytes || !make_private_folder(file.parent_path())) return;
  struct stat status {};
  const bool there = ::lstat(file.c_str(), &status) == 0;
  if (there && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) return;
  remove_leftovers(file);
  TemporaryFile beside(file, 0600);
  write_all(beside.fd(), std::as_bytes(std::span(text)), beside.path());
  beside.publish(/*lasting=*/false);
} catch (...) {
  // A cache that cannot be written is no error: the next run measures again.
}

}  // namespace ridgeline
