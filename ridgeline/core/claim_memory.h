#pragma once

#include <cstddef>

namespace ridgeline {

// Fills [begin, begin + bytes) with zeros and so takes the memory behind it for good. False where
// there is none: a full /dev/shm kills whoever writes to a mapping of it, and nobody who asks
// first.
bool claim_memory(std::byte* begin, size_t bytes);

}  // namespace ridgeline
