#pragma once

#include <cstdint>

namespace ridgeline::cuda {

// Polls until ended() is true. With RIDGELINE_BOUNDED_WAIT, a wait of several seconds traps, so
// that a missing signal is reported as an error and not as a hang.
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
