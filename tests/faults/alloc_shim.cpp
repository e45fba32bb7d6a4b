// Preloaded (LD_PRELOAD) before the tool, this library makes its N-th allocation fail, once:
// RIDGELINE_FAIL_ALLOC=N, counted from 1 just before main(). RIDGELINE_FAIL_ALLOC_SITES=FILE writes
// to FILE the numbers of the allocations that come from a new place in the program, identified by
// its callers, but for those of MPI: each is worth failing. Another memory library, such as
// LeakSanitizer's, may be preloaded after this one.
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
#include <cstring>
#include <type_traits>

namespace {

// The functions that come next in the loader's order.
struct Next {
  void* (*malloc)(size_t) = nullptr;
  void* (*calloc)(size_t, size_t) = nullptr;
  void* (*realloc)(void*, size_t) = nullptr;
  void* (*memalign)(size_t, size_t) = nullptr;
  void (*free)(void*) = nullptr;
};

// Memory for requests made while they are looked up; never freed.
alignas(16) char early[1 << 16];
std::atomic<size_t> early_used{0};

bool is_early(const void* memory) { return memory >= early && memory < early + sizeof early; }

void* take_early(size_t bytes) {
  const size_t begin = early_used.fetch_add((bytes + 15) / 16 * 16);
  return begin + bytes <= sizeof early ? early + begin : nullptr;
}

thread_local bool looking_up __attribute__((tls_model("initial-exec"))) = false;

const Next* next() {
  static Next all;
  static std::atomic<bool> known{false};
  if (known) return &all;
  if (looking_up) return nullptr;
  looking_up = true;
  const auto look_up = [](auto& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_NEXT, name));
  };
  look_up(all.malloc, "malloc");
  look_up(all.calloc, "calloc");
  look_up(all.realloc, "realloc");
  look_up(all.memalign, "memalign");
  look_up(all.free, "free");
  known = true;
  looking_up = false;
  return &all;
}

std::atomic<long> count{0};
std::atomic<long> fail_at{0};
std::atomic<bool> begun{false};
int sites = -1;
thread_local bool inside = false;

constexpr size_t kPlaces = size_t{1} << 18;
std::atomic<uint64_t> seen[kPlaces];

// MPI and what it loads end the process when they lack memory.
bool is_of_mpi(void* const* frames, int depth) {
  for (int i = 0; i < depth; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    for (const char* const name :
         {"/libmpi.", "/libopen-", "/libpmix", "/mca_", "/openmpi", "/pmix"}) {
      if (std::strstr(info.dli_fname, name) != nullptr) return true;
    }
  }
  return false;
}

// True the first time that this call stack occurs.
bool is_new_site() {
  void* frames[12];
  const int depth = backtrace(frames, 12);
  if (is_of_mpi(frames, depth)) return false;
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

void* malloc(size_t bytes) {
  if (fails()) return nullptr;
  const Next* const all = next();
  return all == nullptr ? take_early(bytes) : all->malloc(bytes);
}
void* calloc(size_t number, size_t bytes) {
  if (fails()) return nullptr;
  const Next* const all = next();
  return all == nullptr ? take_early(number * bytes) : all->calloc(number, bytes);
}
void* realloc(void* memory, size_t bytes) {
  if (fails()) return nullptr;
  if (!is_early(memory)) return next()->realloc(memory, bytes);
  void* const moved = next()->malloc(bytes);
  if (moved != nullptr) {
    const auto left = size_t(early + sizeof early - static_cast<char*>(memory));
    std::memcpy(moved, memory, bytes < left ? bytes : left);
  }
  return moved;
}
void* memalign(size_t alignment, size_t bytes) {
  return fails() ? nullptr : next()->memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** to, size_t alignment, size_t bytes) {
  *to = memalign(alignment, bytes);
  return *to == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  if (memory != nullptr && !is_early(memory)) next()->free(memory);
}
}
