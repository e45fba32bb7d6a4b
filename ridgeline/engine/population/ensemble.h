#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ridgeline::engine {

// The bytes of a model file that gives the mean of these models' outputs: of their probabilities,
// if they tell classes apart. Its net has their nets as branches, so that it is evaluated and
// predicts as one program. They must be of one data set and loss. Throws usage for models that
// cannot be joined, and for fewer than two.
std::vector<std::byte> make_ensemble(std::span<const std::vector<std::byte>> models);

}  // namespace ridgeline::engine
