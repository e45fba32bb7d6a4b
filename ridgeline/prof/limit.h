#pragma once

#include <algorithm>

#include "ridgeline/plan/program.h"
#include "ridgeline/prof/ceilings.h"

namespace ridgeline::prof {

// The least time one step of a program can take on a machine: its arithmetic at the peak rate, or
// its external bytes at the copy rate of memory that large, whichever takes longer.
struct Limit {
  double flops = 0, bytes = 0;
  double compute_seconds = 0, memory_seconds = 0;

  double seconds() const { return std::max(compute_seconds, memory_seconds); }
  const char* bound() const { return compute_seconds >= memory_seconds ? "compute" : "memory"; }
  // The fraction of the limit that a step of `measured` seconds reaches: 1 is the limit itself.
  double fraction(double measured) const { return measured > 0 ? seconds() / measured : 0; }
};

inline Limit limit_of(double flops, double bytes, Precision precision, const Ceilings& ceilings) {
  Limit limit{flops, bytes, 0, 0};
  const double rate = ceilings.flops(precision);
  const double bandwidth = ceilings.bandwidth(bytes / 2);  // most are read and written in place
  if (rate > 0) limit.compute_seconds = flops / rate;
  if (bandwidth > 0) limit.memory_seconds = bytes / bandwidth;
  return limit;
}

inline Limit limit_of(const Program& program, const Ceilings& ceilings) {
  return limit_of(program.flops(), program.external_bytes(), program.precision, ceilings);
}

}  // namespace ridgeline::prof
