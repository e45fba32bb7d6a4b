// Preloaded (LD_PRELOAD) before the tool, this makes its N-th allocation fail, once:
// RIDGELINE_FAIL_ALLOC=N, counted from 1 once main() is about to begin.
// RIDGELINE_FAIL_ALLOC_SITES=FILE writes there the numbers of the allocations that a place in the
// program, known by its callers, makes for the first time: each is worth failing.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

std::atomic<long> count{0};
std::atomic<long> fail_at{0};
std::atomic<bool> begun{false};
int sites = -1;
thread_local bool inside = false;

constexpr size_t kPlaces = size_t{1} << 18;
std::atomic<uint64_t> seen[kPlaces];

// True the first time that this stack comes by.
bool is_new_site() {
  void* frames[12];
  const int depth = backtrace(frames, 12);
  uint64_t hash = 0xcbf29ce484222325ull;
  for (int i = 3; i < depth; ++i) {
    hash = (hash ^ uint64_t(reinterpret_cast<uintptr_t>(frames[i]))) * 0x100000001b3ull;
  }
  hash |= 1;
  for (size_t i = 0; i < kPlaces; ++i) {
    auto& place = seen[(hash + i) % kPlaces];
    uint64_t is = 0;
    if (place.compare_exchange_strong(is, hash)) return true;
    if (is == hash) return false;
  }
  return false;
}

bool fails() {
  if (!begun || inside) return false;
  const long now = ++count;
  if (sites >= 0) {
    inside = true;
    if (is_new_site()) {
      char text[32];
      const int length = std::snprintf(text, sizeof text, "%ld\n", now);
      [[maybe_unused]] const ssize_t written = ::write(sites, text, size_t(length));
    }
    inside = false;
  }
  if (now != fail_at) return false;
  errno = ENOMEM;
  return true;
}

int (*real_main)(int, char**, char**) = nullptr;

int counted_main(int count, char** arguments, char** environment) {
  if (const char* text = std::getenv("RIDGELINE_FAIL_ALLOC")) fail_at = std::atol(text);
  if (const char* path = std::getenv("RIDGELINE_FAIL_ALLOC_SITES")) {
    void* frames[2];
    backtrace(frames, 2);  // the first call loads a library
    sites = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  }
  begun = true;
  const int result = real_main(count, arguments, environment);
  begun = false;
  return result;
}

}  // namespace

extern "C" {

int __libc_start_main(int (*main)(int, char**, char**), int count, char** arguments, void (*init)(),
                      void (*finish)(), void (*linker)(), void* stack) {
  const auto real =
      reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  real_main = main;
  return real(counted_main, count, arguments, init, finish, linker, stack);
}

void* malloc(size_t bytes) { return fails() ? nullptr : __libc_malloc(bytes); }
void* calloc(size_t number, size_t bytes) {
  return fails() ? nullptr : __libc_calloc(number, bytes);
}
void* realloc(void* memory, size_t bytes) {
  return fails() ? nullptr : __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return fails() ? nullptr : __libc_memalign(alignment, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  return fails() ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** to, size_t alignment, size_t bytes) {
  if (fails()) return ENOMEM;
  *to = __libc_memalign(alignment, bytes);
  return *to == nullptr ? ENOMEM : 0;
}
}
