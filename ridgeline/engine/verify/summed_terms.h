#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "ridgeline/plan/program.h"

namespace ridgeline::engine {

// For each weight, optimizer state and running statistic of a training program, by name: how many
// terms the sum has that changes one of its elements in a step. A convolution's weight sums over
// the samples and the pixels of its output, a recurrent layer's over the samples and timesteps.
std::unordered_map<std::string, int64_t> summed_terms(const Program& program);

}  // namespace ridgeline::engine
