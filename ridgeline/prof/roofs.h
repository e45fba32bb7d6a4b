#pragma once

#include <array>

#include "ridgeline/prof/ceilings.h"

namespace ridgeline::prof {

// What can hold a kernel back.
enum class Roof { compute, memory, launch, barrier, pcie, network };
constexpr int kRoofs = 6;
const char* name(Roof roof);

// The work of one kernel, in what each roof limits.
struct Work {
  double flops = 0, bytes = 0;
  Precision precision = Precision::fp32;
  double launches = 0;       // of GPU functions, one after the other
  double regions = 0;        // of all threads of a CPU, each with a barrier at its end
  double host_bytes = 0;     // over the bus between host and GPU
  double network_bytes = 0;  // between ranks
};

// The least time each roof allows for it; 0 where the roof was not measured or nothing is asked.
struct RoofTimes {
  std::array<double, kRoofs> seconds{};

  double of(Roof roof) const { return seconds[size_t(roof)]; }
  Roof binding() const;  // the one that allows least
  double least() const { return of(binding()); }
};
RoofTimes roof_times(const Work& work, const Ceilings& ceilings);

}  // namespace ridgeline::prof
