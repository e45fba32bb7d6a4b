#pragma once

#include <type_traits>

namespace ridgeline::cuda {

// An unsigned integer that holds the bits of a non-negative T. Such bits are ordered like the
// values, so that an integer atomicMax keeps the largest value.
template <typename T>
using OrderedBits = std::conditional_t<std::is_same_v<T, double>, unsigned long long, unsigned>;

}  // namespace ridgeline::cuda
