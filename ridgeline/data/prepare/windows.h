#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/core/thread_pool.h"

namespace ridgeline::data {

// Time series as samples: `window` consecutive timesteps are the input, and the target is that of
// the timestep `horizon` after the last of them. Windows begin `stride` timesteps apart.
struct WindowRule {
  int64_t window = 0, horizon = 1, stride = 1;

  bool operator==(const WindowRule&) const = default;
  int64_t span() const { return window + horizon; }  // timesteps of a window and its target
};

// Throws Error(usage) if a number is below 1.
void check_windows(const WindowRule& rule);

// Returns the first timesteps of the windows that lie, with their targets, within [part.begin,
// part.end). Parts that do not overlap share no timestep, so training sees nothing of a test part.
// Throws Error(data), about the set `name`, if no window fits.
std::vector<int64_t> window_starts(Range part, const WindowRule& rule,
                                   const std::string& name = "the series");

// Returns the timestep of the target of the window that begins at `start`.
inline int64_t target_of(int64_t start, const WindowRule& rule) {
  return start + rule.window - 1 + rule.horizon;
}

// Copies windows of `timesteps`, [all][width], to `out`, [starts][window][width].
template <typename T>
void gather_windows(std::span<const T> timesteps, int64_t width, std::span<const int64_t> starts,
                    const WindowRule& rule, std::span<T> out) {
  const auto size = size_t(rule.window * width);
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto from = timesteps.subspan(size_t(starts[i] * width), size);
    std::copy(from.begin(), from.end(), out.begin() + ptrdiff_t(i * size));
  }
}

}  // namespace ridgeline::data
