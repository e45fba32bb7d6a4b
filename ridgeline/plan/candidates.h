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
constexpr const char* kOtherOp = "the next op";  // how the refusals of kernels of other ops begin

// Selects which of the kernels that are slow to ask are asked.
enum class Slow {
  all,         // their times will be compared
  where_bare,  // only if no kernel before them covers the op: the table's order decides
};

// Asks every kernel at every position; slow ones as `slow` says, and those that are `named`.
// `every` keeps the refusals of kernels for other ops, however many there are.
std::vector<Candidate> ask_all(const Program& program, const KernelTable& table,
                               const Runtime& runtime, const PlanOptions& options, Slow slow,
                               PlanningSteps& steps, const std::vector<std::string>& named = {},
                               bool every = false);

// Asks as planning by these options has to.
std::vector<Candidate> ask_for(const Program& program, const KernelTable& table,
                               const Runtime& runtime, const PlanOptions& options,
                               PlanningSteps& steps);

// What the search may choose from: the candidates that cover something, fallbacks only where
// nothing else does, unless all are wanted. `steps` must outlive it.
Options usable(const Program& program, const KernelTable& table, const std::vector<Candidate>& all,
               bool with_fallbacks, PlanningSteps& steps);

}  // namespace ridgeline
