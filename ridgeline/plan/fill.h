#pragma once

#include <cstddef>
#include <span>

#include "ridgeline/core/runtime.h"

namespace ridgeline {

// Repeats `block` over `bytes` of device memory; an empty block leaves the memory unchanged.
void fill_repeating(Runtime& runtime, std::byte* data, size_t bytes,
                    std::span<const std::byte> block);

}  // namespace ridgeline
