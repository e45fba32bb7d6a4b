#pragma once

#include <string>
#include <vector>

#include "ridgeline/plan/planner.h"
#include "ridgeline/plan/search.h"

namespace ridgeline {

// Reasons for which kernels refuse an op. None of these says anything about the op itself.
constexpr const char* kNotAsked = "not asked for";
constexpr const char* kUnwanted = "left out on request";
constexpr const char* kDemonstration = "for ladders only, as a demonstration";
constexpr const char* kOtherOp = "the next op";  // prefix of refusals of kernels for other ops

// Selects which of the kernels with slow covers() are asked.
enum class Slow {
  all,         // their times will be compared
  where_bare,  // only if no kernel before them covers the op: the table's order decides
};

// Calls covers() of every kernel at every position; of slow ones as `slow` says, and of those that
// are `named`. `every` keeps all refusals of kernels for other ops.
std::vector<Candidate> ask_all(const Program& program, const KernelTable& table,
                               const Runtime& runtime, const PlanOptions& options, Slow slow,
                               PlanningSteps& steps, const std::vector<std::string>& named = {},
                               bool every = false);

// Asks the kernels that planning with these options needs.
std::vector<Candidate> ask_for(const Program& program, const KernelTable& table,
                               const Runtime& runtime, const PlanOptions& options,
                               PlanningSteps& steps);

// Returns the candidates that the search may choose from: those that cover something; fallbacks
// only if nothing else does, unless all are wanted. `steps` must outlive the result.
Options usable(const Program& program, const KernelTable& table, const std::vector<Candidate>& all,
               bool with_fallbacks, PlanningSteps& steps);

}  // namespace ridgeline
