#include "ridgeline/prof/roofs.h"

#include <algorithm>

namespace ridgeline::prof {

const char* name(Roof roof) {
  constexpr const char* kNames[kRoofs] = {"compute", "memory", "launch",
                                          "barrier", "PCIe",   "network"};
  return kNames[size_t(roof)];
}

Roof RoofTimes::binding() const {
  return Roof(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
}

RoofTimes roof_times(const Work& work, const Ceilings& ceilings) {
  RoofTimes times;
  const auto set = [&](Roof roof, double amount, double rate) {
    if (rate > 0) times.seconds[size_t(roof)] = amount / rate;
  };
  set(Roof::compute, work.flops, ceilings.flops(work.precision));
  // As for the limit of a whole step, most of it is read and written in place.
  set(Roof::memory, work.bytes, ceilings.bandwidth(work.bytes / 2));
  set(Roof::pcie, work.host_bytes, ceilings.host_bandwidth);
  set(Roof::network, work.network_bytes, ceilings.network_bandwidth);
  times.seconds[size_t(Roof::launch)] = work.launches * ceilings.launch_seconds;
  times.seconds[size_t(Roof::barrier)] = work.regions * ceilings.region_seconds;
  return times;
}

}  // namespace ridgeline::prof
