#pragma once

#include "ridgeline/plan/search.h"

namespace ridgeline {

// Measures the kernels of `candidates`, searches the cheapest covers and returns the fastest of the
// best few and of `fixed`, the cover in the table's order, all measured as a whole. If measuring
// must end early, the kernels measured until then compete: first those of `fixed`, then those that
// could save the most of its time. Fills in `explanation`.
Choices tune(const Program& program, const KernelTable& table, const Options& candidates,
             Choices fixed, const Runtime& runtime, const PlanOptions& options,
             Stopwatch& stopwatch, Explanation& explanation);

// On an idle machine a measuring thread has a processor for more than this share of its time, even
// if it waits for others of its pool; on a busy machine for less.
constexpr double kIdleShare = 0.5;

}  // namespace ridgeline
