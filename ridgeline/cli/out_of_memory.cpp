// operator new of the tool: its exception says how many bytes were wanted. Sanitizers have their
// own.
#include "ridgeline/cli/out_of_memory.h"

#include <malloc.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "ridgeline/core/failure.h"

namespace ridgeline::cli {
namespace {

// Freed when memory runs out, so that there is enough to report it.
constexpr size_t kReserve = size_t{256} << 10;
std::atomic<void*> reserve{nullptr};

}  // namespace

void prepare_for_lack_of_memory() {
  rlimit limit{};
  // Otherwise each thread would map 64 MiB for its own arena.
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    mallopt(M_ARENA_MAX, 1);
  }
  reserve = std::malloc(kReserve);
}

[[noreturn]] void throw_out_of_memory(size_t bytes) {
  std::free(reserve.exchange(nullptr));
  throw OutOfMemory(bytes);
}

}  // namespace ridgeline::cli

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

void* operator new(size_t bytes) {
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  ridgeline::cli::throw_out_of_memory(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

#endif
