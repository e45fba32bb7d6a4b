#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "ridgeline/nn/lower.h"

namespace ridgeline::nn {

// Drops those of the `recomputed` ops (indices in ascending order) whose results no op reads.
void drop_unread(Lowered& lowered, const std::vector<size_t>& recomputed);

// Drops ops that write only `unwanted` values. Layers write the gradients of all their weights,
// also of frozen ones; an op that also writes others stays, since its kernels compute all in one.
void drop_unwanted(Lowered& lowered, const std::set<ValueId>& unwanted);

}  // namespace ridgeline::nn
