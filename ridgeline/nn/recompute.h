#pragma once

#include <cstddef>
#include <vector>

#include "ridgeline/nn/model.h"

namespace ridgeline::nn {

// Activation checkpointing: the layers of a model in segments. Of a segment, the backward pass
// keeps what layers of later segments read, and computes the rest of it again when it comes there;
// the last segment is kept as it is. Returns where each begins, in order, for the least memory:
// what is kept and the largest segment. `bytes` is what the backward pass reads of each layer
// (activation_bytes), `bytes_a_number` the memory of a number of a sample's activations.
std::vector<size_t> choose_segments(const Model& model, std::vector<double> bytes,
                                    double bytes_a_number);

}  // namespace ridgeline::nn
