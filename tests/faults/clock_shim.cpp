// Preloaded (LD_PRELOAD) before the tool, this library makes the wall clock jump, as it does when a
// machine is set or wakes up: every tenth of a second to another moment up to a year away.
// RIDGELINE_CLOCK_JUMPS=N is the seed of the jumps. Monotonic clocks are not changed.
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

#include <cstdint>
#include <cstdlib>

namespace {

using GetTime = int (*)(clockid_t, struct timespec*);

GetTime real_clock() {
  static const auto real = reinterpret_cast<GetTime>(dlsym(RTLD_NEXT, "clock_gettime"));
  return real;
}

// The current error of the wall clock in seconds.
int64_t offset() {
  static const char* const seed = std::getenv("RIDGELINE_CLOCK_JUMPS");
  if (seed == nullptr) return 0;
  static const uint64_t first = std::strtoull(seed, nullptr, 10);
  struct timespec now {};
  real_clock()(CLOCK_MONOTONIC, &now);
  // A mix of the seed and of the tenth of a second (splitmix64).
  uint64_t x = first + uint64_t(now.tv_sec * 10 + now.tv_nsec / 100'000'000) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  constexpr int64_t kYear = 365 * 24 * 3600;
  return int64_t((x ^ (x >> 31)) % uint64_t(2 * kYear)) - kYear;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, struct timespec* to) noexcept {
  const int result = real_clock()(clock, to);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    to->tv_sec += offset();
  }
  return result;
}

int gettimeofday(struct timeval* __restrict to, void* __restrict) noexcept {
  struct timespec now {};
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  to->tv_sec = now.tv_sec;
  to->tv_usec = now.tv_nsec / 1000;
  return result;
}

time_t time(time_t* to) noexcept {
  struct timespec now {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (to != nullptr) *to = now.tv_sec;
  return now.tv_sec;
}
}
