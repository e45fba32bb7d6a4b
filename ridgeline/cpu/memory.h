#pragma once

#include <cstddef>

namespace ridgeline::cpu {

// Bytes that this process can still have without swapping: what the machine has available, or what
// its control group leaves, whichever is less.
size_t free_memory();

}  // namespace ridgeline::cpu
