// Preloaded (LD_PRELOAD) before the tool, this library makes its N-th allocation of GPU or pinned
// memory fail, once: RIDGELINE_FAIL_DEVICE_ALLOC=N, counted from 1. RIDGELINE_DEVICE_ALLOCS=FILE
// writes their number to FILE when the process ends. The CUDA runtime is part of the tool and finds
// the driver's functions by dlsym() and then by the driver's own cuGetProcAddress(): this library
// replaces both.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY

struct Count {
  std::atomic<long> made{0};
  const long fail_at = std::getenv("RIDGELINE_FAIL_DEVICE_ALLOC") == nullptr
                           ? 0
                           : std::atol(std::getenv("RIDGELINE_FAIL_DEVICE_ALLOC"));
  bool fails() { return ++made == fail_at; }
  ~Count() {
    const char* const to = std::getenv("RIDGELINE_DEVICE_ALLOCS");
    if (to == nullptr) return;
    if (std::FILE* file = std::fopen(to, "w")) {
      std::fprintf(file, "%ld\n", made.load());
      std::fclose(file);
    }
  }
};
Count count;

// One driver function that allocates, with any arguments.
template <int number, typename... Arguments>
struct Allocation {
  using Function = int (*)(Arguments...);
  static inline Function real = nullptr;
  static int call(Arguments... arguments) {
    return count.fails() ? kOutOfMemory : real(arguments...);
  }
  static void* stand_in(void* found) {
    real = reinterpret_cast<Function>(found);
    return reinterpret_cast<void*>(&call);
  }
};

using Address = uint64_t;

// The replacement of a driver function, or that function itself.
void* stand_in(const char* name, void* found) {
  const auto is = [&](const char* function) {
    const size_t length = std::strlen(function);
    return std::strncmp(name, function, length) == 0 &&
           (name[length] == '\0' || std::strncmp(name + length, "_v", 2) == 0 ||
            std::strcmp(name + length, "_ptsz") == 0);
  };
  if (found == nullptr) return nullptr;
  if (is("cuMemAlloc")) return Allocation<0, Address*, size_t>::stand_in(found);
  if (is("cuMemAllocHost")) return Allocation<1, void**, size_t>::stand_in(found);
  if (is("cuMemHostAlloc")) return Allocation<2, void**, size_t, unsigned>::stand_in(found);
  if (is("cuMemAllocAsync")) return Allocation<3, Address*, size_t, void*>::stand_in(found);
  if (is("cuMemAllocFromPoolAsync")) {
    return Allocation<4, Address*, size_t, void*, void*>::stand_in(found);
  }
  if (is("cuMemAllocManaged")) return Allocation<5, Address*, size_t, unsigned>::stand_in(found);
  return found;
}

using GetProc = int (*)(const char*, void**, int, uint64_t);
using GetProc2 = int (*)(const char*, void**, int, uint64_t, void*);
GetProc real_get = nullptr;
GetProc2 real_get2 = nullptr;

int get(const char* name, void** to, int version, uint64_t flags);
int get2(const char* name, void** to, int version, uint64_t flags, void* status);

// The driver gives its newest cuGetProcAddress for a new version of the runtime.
void* looked_up(const char* name, void* found, int version) {
  constexpr int kSecond = 12000;
  if (found == nullptr) return nullptr;
  if (std::strcmp(name, "cuGetProcAddress_v2") == 0 ||
      (std::strcmp(name, "cuGetProcAddress") == 0 && version >= kSecond)) {
    real_get2 = reinterpret_cast<GetProc2>(found);
    return reinterpret_cast<void*>(&get2);
  }
  if (std::strcmp(name, "cuGetProcAddress") == 0) {
    real_get = reinterpret_cast<GetProc>(found);
    return reinterpret_cast<void*>(&get);
  }
  return stand_in(name, found);
}

int get(const char* name, void** to, int version, uint64_t flags) {
  const int result = real_get(name, to, version, flags);
  if (result == 0 && to != nullptr) *to = looked_up(name, *to, version);
  return result;
}
int get2(const char* name, void** to, int version, uint64_t flags, void* status) {
  const int result = real_get2(name, to, version, flags, status);
  if (result == 0 && to != nullptr) *to = looked_up(name, *to, version);
  return result;
}

}  // namespace

extern "C" void* dlsym(void* handle, const char* name) noexcept {
  using Dlsym = void* (*)(void*, const char*);
  static const auto real = [] {
    void* found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (found == nullptr) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return reinterpret_cast<Dlsym>(found);
  }();
  return looked_up(name, real(handle, name), 0);
}
