#pragma once

#include <functional>

#include "ridgeline/engine/population/population.h"
#include "ridgeline/engine/rank_hooks.h"
#include "ridgeline/engine/sweep/sweep.h"

namespace ridgeline::engine {

// Called on the root, by one thread at a time, for each result of another rank.
using TakePoint = std::function<void(size_t member, SweepPoint point)>;

// train_population() on ranks that divide the members: each requests jobs from the root, and stays
// until all are done. Jobs of a lost rank go to the others. On other ranks `make` turns the
// arguments of `options.finished` into a point, which is passed to `take` on the root. Throws
// Error(comm) if the launcher ends the run because of a lost rank.
PopulationResult train_shared(dist::RankCommunicator& ranks, const std::vector<Member>& members,
                              PopulationOptions options,
                              const std::function<SweepPoint(size_t, const MemberResult&)>& make,
                              const TakePoint& take);

}  // namespace ridgeline::engine
