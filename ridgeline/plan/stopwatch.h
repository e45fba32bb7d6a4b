#pragma once

#include <map>

#include "ridgeline/plan/cache.h"
#include "ridgeline/plan/planner.h"

namespace ridgeline {

// Measures rows and plans on the device, on random data in memory of its own: no weight that
// matters is touched. Learning rates and counters are zero, so repeated steps neither run away nor
// run out.
class DeviceStopwatch final : public Stopwatch {
 public:
  DeviceStopwatch(const Program& program, Runtime& runtime, double seconds_per_row,
                  TuningCache* cache);

  double row(const Choice& choice) override;
  double whole(const Choices& choices) override;

 private:
  Tensor scratch(const Value& value, const Format& format, size_t bytes);
  Externals externals();
  std::vector<Tensor> ticks(size_t begin, size_t end);

  const Program& program_;
  Runtime& runtime_;
  double seconds_;
  TuningCache* cache_;
  std::map<std::pair<ValueId, Format>, DeviceBuffer> memory_;
};

}  // namespace ridgeline
