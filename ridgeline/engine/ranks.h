#pragma once

#include <string>

#include "ridgeline/core/communicator.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/config.h"
#include "ridgeline/engine/weights.h"

// Checks and exchanges for runs over several ranks. All of these are collective.
namespace ridgeline::engine {

// Throws Error(comm) on every rank, naming the rank, if one differs from the root in build, config
// or data.
void check_alike(Communicator& ranks, const Config& config, const data::DataSet& set);

// Checks flags in the same way, given as lines of "key = value".
void check_same_settings(Communicator& ranks, const std::string& settings);

// Checks a model that every rank has loaded for itself in the same way.
void check_same_model(Communicator& ranks, const Config& config, const nn::Model& model);

// Checks one part of a set in the same way.
void check_same_part(Communicator& ranks, const data::SampleSet& set);

// Throws Error(comm) on every rank if the weights of one differ from the root's in any bit; names
// the rank and the first tensor that differs.
void check_replicas(Communicator& ranks, const Snapshot& mine, int64_t step);

// Copies the root's snapshot to every rank; names, types and shapes must already agree.
void share_snapshot(Communicator& ranks, Snapshot& snapshot);

// Returns the default number of threads of a rank: those it may run on, shared with the ranks of
// this host that may run on the same.
int threads_of_rank(Communicator& ranks);

}  // namespace ridgeline::engine
