#pragma once

#include <algorithm>
#include <cstdint>

namespace ridgeline::engine {

// The number of samples per launch if nobody has set it: `usual`, or fewer if samples are so large
// that they would fill memory. A model file of a kilobyte may ask for images of 4096 x 4096.
constexpr int64_t launch_samples(int64_t usual, int64_t features) {
  constexpr int64_t kMostElements = int64_t{1} << 24;  // 64 MiB of floats
  return std::clamp<int64_t>(kMostElements / std::max<int64_t>(1, features), 1, usual);
}

}  // namespace ridgeline::engine
