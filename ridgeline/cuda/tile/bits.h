#pragma once

#include <type_traits>

namespace ridgeline::cuda {

// The bits of a number that is not negative, in the numbers' order: what a maximum is kept in.
template <typename T>
using Bits = std::conditional_t<std::is_same_v<T, double>, unsigned long long, unsigned>;

}  // namespace ridgeline::cuda
