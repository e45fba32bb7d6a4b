#pragma once

#include <map>

#include "ridgeline/plan/cache.h"
#include "ridgeline/plan/planner.h"

namespace ridgeline {

// Measures kernels and plans on the device, on random data in memory of its own, so that no weights
// change. Learning rates and counters are zero, so that repeated steps neither diverge nor run out
// of samples.
class DeviceStopwatch final : public Stopwatch {
 public:
  DeviceStopwatch(const Program& program, Runtime& runtime, double seconds_per_kernel,
                  TuningCache* cache);

  double kernel(const Choice& choice) override;
  double whole(const Choices& choices) override { return time_plan(choices, 4 * seconds_); }

  // Measures roughly, in a fraction of the time.
  double glance(const Choices& choices) { return time_plan(choices, seconds_ / 4); }

  // From now on kernels are measured even if the cache has a time; the new time replaces it.
  void measure_anew() { anew_ = true; }
  // Measures kernels again that this stopwatch has already measured.
  void forget() { measured_.clear(); }

 private:
  double time_plan(const Choices& choices, double budget);
  // Ranks must repeat joint work equally often.
  double time(const std::function<void()>& run, double budget, bool together);

  Tensor scratch(const Value& value, const Format& format, size_t bytes);
  Externals externals();
  std::vector<Tensor> ticks(size_t begin, size_t end);
  int64_t steps_for(double seconds) const;
  void clear(const std::vector<Tensor>& counters);

  const Program& program_;
  Runtime& runtime_;
  double seconds_;
  bool anew_ = false;
  TuningCache* cache_;
  std::map<std::string, double> measured_;  // by this stopwatch, as keyed in the cache
  std::map<std::pair<ValueId, Format>, DeviceBuffer> memory_;
};

}  // namespace ridgeline
