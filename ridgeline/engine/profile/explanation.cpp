#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "ridgeline/engine/profile/profile.h"

// Explains why host calls and GPU functions take different times, from the lists of a profile
// alone.
namespace ridgeline::engine {
namespace {

enum class Purpose { wait, ask, set_up, copy, other };

Purpose purpose_of(std::string_view call) {
  const auto has = [&](std::string_view part) { return call.find(part) != std::string_view::npos; };
  if (has("Synchronize") || has("Query")) return Purpose::wait;
  if (has("Memcpy") || has("Memset")) return has("Async") ? Purpose::ask : Purpose::copy;
  if (has("GraphInstantiate") || has("Capture") || has("Malloc") || has("Alloc") || has("Free") ||
      has("Module") || has("Library") || has("GetFunction") || has("FuncGet") || has("FuncSet") ||
      has("Create") || has("Destroy") || has("DeviceProp") || has("Init")) {
    return Purpose::set_up;
  }
  if (has("Launch")) return Purpose::ask;
  return Purpose::other;
}

const char* meaning(Purpose purpose) {
  switch (purpose) {
    case Purpose::wait:
      return "waits for GPU functions: its time is theirs and adds nothing to it";
    case Purpose::ask:
      return "asks for work and returns: the GPU does it while the host goes on";
    case Purpose::set_up:
      return "sets up memory, code or graphs, once at the start and not at every step";
    case Purpose::copy:
      return "copies and waits until the copy is done";
    default:
      return "is the driver's own work";
  }
}

std::string seconds_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.3g} us", 1e6 * seconds)
                        : fmt::format("{:.3g} ms", 1e3 * seconds);
}

}  // namespace

std::vector<std::string> explain_calls(const Profile& profile) {
  if (profile.api.empty()) return {};
  double by_purpose[5] = {};
  for (const ApiUse& use : profile.api) by_purpose[size_t(purpose_of(use.name))] += use.seconds;
  const double waiting = by_purpose[size_t(Purpose::wait)] + by_purpose[size_t(Purpose::copy)];
  const double asking = by_purpose[size_t(Purpose::ask)];
  std::vector<std::string> lines;
  const char* why = "the host's calls and the GPU's functions overlap";
  if (by_purpose[size_t(Purpose::set_up)] > 0.5 * profile.api_seconds) {
    why = "most of the host's calls set things up once; a longer run makes their share small";
  } else if (waiting > 0.5 * profile.api_seconds) {
    why = "the host mostly waits for the GPU, which is what limits the program";
  } else if (asking > profile.function_seconds) {
    why =
        "asking for work takes longer than the work: the GPU waits for the host, and steps joined "
        "in graphs or kernels that cover more ops help";
  }
  lines.push_back(fmt::format("GPU functions ran for {} and host calls took {}: {}.",
                              seconds_text(profile.function_seconds),
                              seconds_text(profile.api_seconds), why));
  for (const ApiUse& use : profile.api) {
    lines.push_back(fmt::format("{} {}.", use.name, meaning(purpose_of(use.name))));
  }
  return lines;
}

}  // namespace ridgeline::engine
