#pragma once

#include <cstdint>

namespace ridgeline::cuda {

// Asks until the answer is yes. With RIDGELINE_BOUNDED_WAIT a wait that takes seconds traps, so
// that what never comes shows as an error and not as a hang.
template <typename Ended>
__device__ inline void spin_until(const Ended& ended) {
#ifdef RIDGELINE_BOUNDED_WAIT
  for (uint32_t spins = 0; !ended(); ++spins) {
    if (spins > (1u << 20)) __trap();
  }
#else
  while (!ended()) {
  }
#endif
}

}  // namespace ridgeline::cuda
