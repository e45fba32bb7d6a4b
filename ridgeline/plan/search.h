#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "ridgeline/plan/planner.h"

namespace ridgeline {

// The kernels that may be used at each position, with their covers there.
struct Options {
  std::vector<std::vector<Candidate>>
      at;  // by position; candidates with cover.ops > 0, table order
  std::vector<const Kernel*> conversions;
  size_t* walked = nullptr;  // if set: counts the ops that the search passes over
};

// Returns the seconds of a choice; called once for each distinct choice.
using Cost = std::function<double(const Choice&)>;

// Returns the `count` cheapest covers of the program, cheapest first; none if there is no cover.
// Exact unless more than kMostStates combinations of formats are alive at one position.
constexpr size_t kMostStates = 64;
std::vector<Choices> cheapest_covers(const Program& program, const Options& options,
                                     const Cost& cost, size_t count);

// Returns the first cover found by taking kernels in table order at each position; empty if there
// is none.
Choices first_cover(const Program& program, const Options& options);

// Returns the cover whose kernels have these names, in order; empty if they do not fit the program.
Choices named_cover(const Program& program, const Options& options,
                    const std::vector<std::string>& names);

// Returns the first position that no cover of the ops before it gets past.
size_t stuck_at(const Program& program, const Options& options);

}  // namespace ridgeline
