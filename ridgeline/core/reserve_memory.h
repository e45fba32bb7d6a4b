#pragma once

#include <cstddef>

namespace ridgeline {

// Fills [begin, begin + bytes) with zeros, which permanently allocates the pages of a mapping.
// Returns false if there is no memory for them. A plain write to a mapping of a full /dev/shm would
// kill the process instead.
bool reserve_memory(std::byte* begin, size_t bytes);

}  // namespace ridgeline
