#pragma once

#include <string>
#include <vector>

#include "ridgeline/engine/machine.h"

namespace ridgeline::engine {

// The time of one op by one way of computing it: the fastest of the kernels whose names differ only
// in their number ("cuda.linear.cublaslt.0", ".1", ... are one way).
struct WayTime {
  std::string way;                // "tile", "cublaslt", "onednn"
  std::string kernel;             // the fastest
  double seconds = 0, least = 0;  // the median and the minimum of its measurements
  bool vendor = false;            // a library's kernel, not ours
};

// Times every way to compute op `at` of a program alone that the run's --kernels allow, in the
// table's order; references only if nothing else does. Operands are random and stay in the caches
// that hold them.
std::vector<WayTime> time_ways(const Program& program, Machine& machine, double seconds_per_kernel,
                               size_t at = 0);

}  // namespace ridgeline::engine
