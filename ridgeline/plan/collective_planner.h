#pragma once

#include <functional>

#include "ridgeline/plan/planner.h"

namespace ridgeline {

// plan_program() for a program with collectives, called by all ranks. The root searches with the
// times of the slowest rank; the others measure what it asks for on their own share, then all take
// the kernels that it names. If those do not fit some rank, all take the kernels that fit every
// rank in the table's order: ranks with different kernels would wait for one another forever.
Planned plan_collectively(const Program& program, const KernelTable& table, Runtime& runtime,
                          const PlanOptions& options, TuningCache* cache, Communicator& ranks);

// Plans in the table's order, without measuring. `narrow` may refuse further candidates.
Planned plan_in_order(const Program& program, const KernelTable& table, Runtime& runtime,
                      PlanOptions options,
                      const std::function<void(std::vector<Candidate>&)>& narrow);

// The key under which a plan is cached.
std::string plan_key(const Program& program, const PlanOptions& options);

}  // namespace ridgeline
