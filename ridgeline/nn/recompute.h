#pragma once

#include <cstddef>
#include <vector>

#include "ridgeline/nn/model.h"

namespace ridgeline::nn {

// Activation checkpointing: divides the layers of a model into segments. The backward pass keeps
// those values of a segment that layers of later segments read, and recomputes the rest of it when
// it gets there; the last segment is kept entirely. Returns where each segment begins, in order,
// for the least memory: what is kept plus the largest segment. `bytes` is what the backward pass
// reads of each layer (activation_bytes), `bytes_per_element` the memory of a number of a sample's
// activations.
std::vector<size_t> choose_segments(const Model& model, std::vector<double> bytes,
                                    double bytes_per_element);

}  // namespace ridgeline::nn
