#include "ridgeline/engine/bench/kernel_times.h"

#include <algorithm>
#include <array>
#include <span>

#include "ridgeline/plan/kernel_patterns.h"
#include "ridgeline/plan/stopwatch.h"

namespace ridgeline::engine {
namespace {

// "cuda.linear.cublaslt.3" -> "cublaslt"
std::string way_of(const std::string& kernel) {
  const size_t op = kernel.find('.') + 1;
  const size_t way = kernel.find('.', op) + 1;
  return kernel.substr(way, kernel.find('.', way) - way);
}

// A way and how to measure its time again.
struct Timed {
  WayTime time;
  Choice choice;
};

void keep_fastest(std::vector<Timed>& ways, Timed timed) {
  const auto same =
      std::ranges::find(ways, timed.time.way, [](const Timed& each) { return each.time.way; });
  if (same == ways.end()) {
    ways.push_back(std::move(timed));
  } else if (timed.time.seconds < same->time.seconds) {
    *same = std::move(timed);
  }
}

// Measures twice more: the differences are the noise of a comparison.
void read_again(Timed& timed, DeviceStopwatch& stopwatch) {
  std::array readings{timed.time.seconds, 0.0, 0.0};
  for (double& reading : std::span(readings).subspan(1)) {
    stopwatch.forget();
    reading = stopwatch.kernel(timed.choice);
  }
  std::ranges::sort(readings);
  timed.time.least = readings[0];
  timed.time.seconds = readings[1];
}

}  // namespace

std::vector<WayTime> time_ways(const Program& program, Machine& machine, double seconds_per_kernel,
                               size_t at) {
  DeviceStopwatch stopwatch(program, machine.runtime(), seconds_per_kernel / 2, nullptr);
  std::vector<Timed> ways;
  for (const bool references : {false, true}) {
    if (references && !ways.empty()) break;
    for (const Kernel& kernel : machine.kernels()) {
      if (!kernel.covers || kernel.traits.fallback != references) continue;
      if (!is_asked_for(kernel, machine.plan_options())) continue;
      const Cover cover = offer(kernel, {program, at, machine.runtime()});
      if (cover.ops != 1) continue;
      const std::string way = way_of(kernel.name);
      Choice choice;
      choice.kernel = &kernel;
      choice.begin = at;
      choice.end = at + 1;
      choice.cover = cover;
      const double seconds = stopwatch.kernel(choice);
      keep_fastest(ways, {{way, kernel.name, seconds, seconds, kernel.traits.vendor}, choice});
    }
  }
  std::vector<WayTime> times;
  for (Timed& way : ways) {
    // A measurement that takes too long is not repeated.
    if (way.time.seconds < seconds_per_kernel) read_again(way, stopwatch);
    times.push_back(std::move(way.time));
  }
  return times;
}

}  // namespace ridgeline::engine
