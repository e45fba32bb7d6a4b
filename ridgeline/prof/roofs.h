#pragma once

#include <array>

#include "ridgeline/prof/ceilings.h"

namespace ridgeline::prof {

// The limits of a kernel's speed.
enum class Roof { compute, memory, launch, barrier, pcie, network };
constexpr int kRoofs = 6;
const char* name(Roof roof);

// The work of one kernel, in the units of each roof.
struct Work {
  double flops = 0, bytes = 0;
  Precision precision = Precision::fp32;
  double launches = 0;       // of GPU functions, one after the other
  double regions = 0;        // of all threads of a CPU, each with a barrier at its end
  double host_bytes = 0;     // over the bus between host and GPU
  double network_bytes = 0;  // between ranks
};

// The least time that each roof allows; 0 if the roof was not measured or does not apply.
struct RoofTimes {
  std::array<double, kRoofs> seconds{};

  double of(Roof roof) const { return seconds[size_t(roof)]; }
  Roof binding() const;  // the roof with the longest time
  double least() const { return of(binding()); }
};
RoofTimes roof_times(const Work& work, const Ceilings& ceilings);

}  // namespace ridgeline::prof
