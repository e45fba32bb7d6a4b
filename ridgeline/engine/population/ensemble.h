#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ridgeline::engine {

// Returns the bytes of a model file that computes the mean of these models' outputs: of their
// probabilities, if they are classifiers. Its net has their nets as branches, so that it runs as
// one program. They must have the same data set and loss. Throws Error(usage) for models that
// cannot be joined, and for fewer than two.
std::vector<std::byte> make_ensemble(std::span<const std::vector<std::byte>> models);

}  // namespace ridgeline::engine
