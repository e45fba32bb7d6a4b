#pragma once

#include "ridgeline/plan/planner.h"

namespace ridgeline {

// plan_program() for a program with collectives, called by all ranks. The root searches, on the
// slowest rank's times; the others measure what it asks for on their own share, then all take the
// rows it names. Should they not fit some rank, all take the table's order, whose collectives fit
// one another on any rank.
Planned plan_together(const Program& program, const Table& table, Runtime& runtime,
                      const PlanOptions& options, TuningCache* cache, Communicator& ranks);

// What a plan is cached under.
std::string plan_key(const Program& program, const PlanOptions& options);

}  // namespace ridgeline
