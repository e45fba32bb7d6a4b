#pragma once

#include <string>

#include "ridgeline/core/communicator.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/config.h"
#include "ridgeline/engine/weights.h"

// What a run over several ranks has to agree on. All of these are collective.
namespace ridgeline::engine {

// Throws comm on every rank when one has another build, config or data than the root, and names it.
void check_alike(Communicator& ranks, const Config& config, const data::DataSet& set);

// The same of flags, as "key = value" a line.
void check_same_settings(Communicator& ranks, const std::string& settings);

// The same of a model that every rank has loaded for itself.
void check_same_model(Communicator& ranks, const Config& config, const nn::Model& model);

// The same of data for a model: one part of a set.
void check_same_part(Communicator& ranks, const data::SampleSet& set);

// Throws comm on every rank when the weights of one are not those of the root bit for bit, and
// names it and the first tensor that differs.
void check_replicas(Communicator& ranks, const Snapshot& mine, int64_t step);

// The root's, on every rank; names, types and shapes are the same already.
void share_snapshot(Communicator& ranks, Snapshot& snapshot);

// Threads of a rank that was not told how many: those it may run on, shared with the ranks of this
// host that may run on the same.
int threads_beside(Communicator& ranks);

}  // namespace ridgeline::engine
