#include "ridgeline/data/prepare/windows.h"

#include "ridgeline/core/error.h"
#include "ridgeline/core/text.h"

namespace ridgeline::data {

void check_windows(const WindowRule& rule) {
  constexpr int64_t kMost = int64_t{1} << 40;  // sums of two fit in 64 bits
  for (const int64_t value : {rule.window, rule.horizon, rule.stride}) {
    if (value >= 1 && value <= kMost) continue;
    throw_error(ErrorKind::usage,
                "windows of {} timesteps, {} ahead, {} apart: each must be at least 1", rule.window,
                rule.horizon, rule.stride);
  }
}

std::vector<int64_t> window_starts(Range part, const WindowRule& rule, const std::string& name) {
  check_windows(rule);
  std::vector<int64_t> starts;
  for (int64_t start = part.begin; start + rule.span() <= part.end; start += rule.stride) {
    starts.push_back(start);
  }
  if (starts.empty()) {
    throw_error(ErrorKind::data,
                "{}: {} are too few for a window of {} and a target {} after it; make it shorter",
                name, counted(part.end - part.begin, "timestep"), rule.window, rule.horizon);
  }
  return starts;
}

}  // namespace ridgeline::data
