// Preloaded (LD_PRELOAD) before the tool, this library makes one of its calls that change files
// fail, or kills the process there.
//   RIDGELINE_FAULT_UNDER   the folder whose files count
//   RIDGELINE_FAULT         "count:0": appends the number of calls to RIDGELINE_FAULT_COUNT when
//                           the process ends
//                           "kill:N": kills the process at the N-th call, before it is made
//                           "half:N": kills it after half of the bytes of a write, or after a call
//                           of another kind
//                           "eio:N", "quota:N": the N-th call fails with this error
//                           "full:N": the N-th call and all later ones that need space fail
//                           "short:0": every write is interrupted once and then writes only a part
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum class Fault { none, count, kill, half, eio, quota, full, partial };
enum class Need { space, nothing };

Fault fault = Fault::none;
long at = 0;
const char* under = nullptr;
std::atomic<long> calls{0};
std::atomic<bool> counted[1024];  // descriptors of files in the folder
std::atomic<unsigned> writes{0};

template <typename F>
F next(const char* name, F) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name) next(#name, &::name)

struct Setup {
  Setup() {
    under = std::getenv("RIDGELINE_FAULT_UNDER");
    const char* text = std::getenv("RIDGELINE_FAULT");
    if (under == nullptr || text == nullptr) return;
    const char* const colon = std::strchr(text, ':');
    if (colon == nullptr) return;
    constexpr struct {
      const char* name;
      Fault fault;
    } kFaults[] = {{"count", Fault::count},  {"kill", Fault::kill},   {"half", Fault::half},
                   {"eio", Fault::eio},      {"quota", Fault::quota}, {"full", Fault::full},
                   {"short", Fault::partial}};
    for (const auto& each : kFaults) {
      if (std::strncmp(text, each.name, size_t(colon - text)) == 0) fault = each.fault;
    }
    at = std::atol(colon + 1);
  }
  ~Setup() {
    const char* const to = std::getenv("RIDGELINE_FAULT_COUNT");
    if (fault != Fault::count || to == nullptr) return;
    if (std::FILE* file = std::fopen(to, "a")) {
      std::fprintf(file, "%ld\n", calls.load());
      std::fclose(file);
    }
  }
};
Setup setup;

bool is_under(const char* path) {
  return under != nullptr && path != nullptr && std::strncmp(path, under, std::strlen(under)) == 0;
}
bool is_counted(int fd) { return fd >= 0 && fd < 1024 && counted[fd].load(); }

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

// Counts a call. Returns true if it is to fail, with errno set. `then_die`: kill after the call.
bool fails(Need need, bool* then_die) {
  const long now = ++calls;
  *then_die = fault == Fault::half && now == at;
  if (fault == Fault::kill && now == at) die();
  if (fault == Fault::eio && now == at) return errno = EIO, true;
  if (fault == Fault::quota && now == at && need == Need::space) return errno = EDQUOT, true;
  if (fault == Fault::full && now >= at && need == Need::space) return errno = ENOSPC, true;
  return false;
}

// Makes a call of any kind but a write.
template <typename F>
auto call(bool counts, Need need, F&& make) -> decltype(make()) {
  bool then_die = false;
  if (counts && fails(need, &then_die)) return -1;
  const auto result = make();
  if (then_die) die();
  return result;
}

int open_counted(const char* path, int flags, mode_t mode) {
  static const auto real = next("open", static_cast<int (*)(const char*, int, ...)>(&::open));
  const bool counts = is_under(path) && (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0;
  const int fd = call(counts, flags & O_CREAT ? Need::space : Need::nothing,
                      [&] { return real(path, flags, mode); });
  // A folder is opened for reading, and synced.
  if (fd >= 0 && fd < 1024) counted[fd] = counts || (is_under(path) && (flags & O_DIRECTORY));
  return fd;
}

mode_t mode_of(int flags, va_list list) { return flags & O_CREAT ? va_arg(list, mode_t) : 0; }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_counted(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_counted(path, flags, mode);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  static const auto real = NEXT(write);
  if (!is_counted(fd)) return real(fd, bytes, count);
  if (fault == Fault::partial) {
    if (writes++ % 2 == 0) return errno = EINTR, -1;
    return real(fd, bytes, count > 64 ? count / 3 : count);
  }
  bool then_die = false;
  if (fails(Need::space, &then_die)) return -1;
  const ssize_t written = real(fd, bytes, then_die ? count / 2 : count);
  if (then_die) die();
  return written;
}

int fsync(int fd) {
  static const auto real = NEXT(fsync);
  return call(is_counted(fd), Need::space, [&] { return real(fd); });
}
int ftruncate(int fd, off_t length) noexcept {
  static const auto real = NEXT(ftruncate);
  return call(is_counted(fd), Need::nothing, [&] { return real(fd, length); });
}
int close(int fd) {
  static const auto real = NEXT(close);
  const bool counts = is_counted(fd);
  if (counts) counted[fd] = false;
  // A descriptor is closed whatever close() returns.
  return call(counts && fault != Fault::eio, Need::nothing, [&] { return real(fd); });
}
int rename(const char* from, const char* to) noexcept {
  static const auto real = NEXT(rename);
  return call(is_under(to), Need::space, [&] { return real(from, to); });
}
int link(const char* from, const char* to) noexcept {
  static const auto real = NEXT(link);
  return call(is_under(to), Need::space, [&] { return real(from, to); });
}
int unlink(const char* path) noexcept {
  static const auto real = NEXT(unlink);
  return call(is_under(path), Need::nothing, [&] { return real(path); });
}
int remove(const char* path) noexcept {
  static const auto real = NEXT(remove);
  return call(is_under(path), Need::nothing, [&] { return real(path); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = NEXT(mkdir);
  return call(is_under(path), Need::space, [&] { return real(path, mode); });
}
}
