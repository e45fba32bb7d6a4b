#pragma once

#include <string>
#include <vector>

#include "ridgeline/engine/machine.h"

namespace ridgeline::engine {

// One op by one way of computing it: the fastest of the kernels that share a name up to their
// number ("cuda.linear.cublaslt.0", ".1", ... are one way).
struct WayTime {
  std::string way;                // "tile", "cublaslt", "onednn"
  std::string kernel;             // the fastest
  double seconds = 0, least = 0;  // the median of its readings, and the least
  bool vendor = false;            // a library's, not ours
};

// Every way that computes op `at` of a program alone, of those the run's --kernels let in, in the
// table's order; references are left out unless nothing else does. Operands are random and stay in
// the caches that hold them.
std::vector<WayTime> time_ways(const Program& program, Machine& machine, double seconds_per_kernel,
                               size_t at = 0);

}  // namespace ridgeline::engine
