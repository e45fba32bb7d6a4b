#include "ridgeline/cpu/onednn/omp_team.h"

#ifdef RIDGELINE_HAVE_ONEDNN

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <string>

#include "ridgeline/core/machine_limits.h"

namespace ridgeline::cpu {

size_t omp_stack_bytes(const char* text) {
  if (text == nullptr) return 0;
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text, &end, 10);
  while (std::isspace(static_cast<unsigned char>(*end)) != 0) ++end;
  int shift = 10;  // kilobytes by default
  switch (std::tolower(static_cast<unsigned char>(*end))) {
    case 'b':
      shift = 0;
      break;
    case 'm':
      shift = 20;
      break;
    case 'g':
      shift = 30;
      break;
    default:
      break;
  }
  return number > (1ull << 40 >> shift) ? 0 : size_t(number << shift);  // as libgomp does
}

int use_omp_threads(int wanted) {
  // These are per thread: each thread that begins regions has its own team, which stays with it.
  thread_local int asked = 1, given = 1;
  if (wanted > asked) {
    const char* own = std::getenv("OMP_STACKSIZE");
    const size_t stack = omp_stack_bytes(own != nullptr ? own : std::getenv("GOMP_STACKSIZE"));
    asked = wanted;
    given = 1 + obtainable_threads(wanted - 1, stack);
    std::atomic<int> members = 0;  // an empty region would be optimised away
#pragma omp parallel num_threads(given)
    members.fetch_add(1, std::memory_order_relaxed);
  }
  const int threads = std::min(wanted, given);
  omp_set_num_threads(threads);
  return threads;
}

}  // namespace ridgeline::cpu

#else

namespace ridgeline::cpu {

int use_omp_threads(int wanted) { return wanted; }  // there are none

}  // namespace ridgeline::cpu

#endif
