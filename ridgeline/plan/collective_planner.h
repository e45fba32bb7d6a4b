#pragma once

#include <functional>

#include "ridgeline/plan/planner.h"

namespace ridgeline {

// plan_program() for a program with collectives, called by all ranks. The root searches with the
// times of the slowest rank; the others measure on their own shares what it asks for; then all take
// the kernels that it names. If those do not fit some rank, all take the kernels that fit every
// rank in the table's order, because ranks with different kernels would deadlock.
Planned plan_collectively(const Program& program, const KernelTable& table, Runtime& runtime,
                          const PlanOptions& options, TuningCache* cache, Communicator& ranks);

// Plans in the table's order, without measuring. `narrow` may refuse further candidates.
Planned plan_in_order(const Program& program, const KernelTable& table, Runtime& runtime,
                      PlanOptions options,
                      const std::function<void(std::vector<Candidate>&)>& narrow);

// Returns the key under which a plan is cached.
std::string plan_key(const Program& program, const PlanOptions& options);

}  // namespace ridgeline
