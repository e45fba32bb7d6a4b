#pragma once

#include <functional>

#include "ridgeline/plan/planner.h"

namespace ridgeline {

// plan_program() for a program with collectives, called by all ranks. The root searches, on the
// slowest rank's times; the others measure what it asks for on their own share, then all take the
// rows it names. Should they not fit some rank, all take the table's order of rows that fit every
// rank: ranks with different rows would wait for one another.
Planned plan_together(const Program& program, const Table& table, Runtime& runtime,
                      const PlanOptions& options, TuningCache* cache, Communicator& ranks);

// The table's order, without measuring. `narrow` may refuse more candidates than the rows do.
Planned plan_in_order(const Program& program, const Table& table, Runtime& runtime,
                      PlanOptions options,
                      const std::function<void(std::vector<Candidate>&)>& narrow);

// What a plan is cached under.
std::string plan_key(const Program& program, const PlanOptions& options);

}  // namespace ridgeline
