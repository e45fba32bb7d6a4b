#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ridgeline {

// A block of memory and the steps, first to last inclusive, during which its contents matter.
struct Lifetime {
  size_t bytes = 0;
  size_t first = 0, last = 0;
};

struct Packing {
  std::vector<size_t> offsets;  // one a lifetime, aligned
  size_t total = 0;
  size_t steps = 0;  // blocks and gaps examined: in proportion to their number but for a logarithm
};

// Finds offsets such that blocks that live at once do not overlap, in little memory. It takes the
// best of several greedy orders, each placing a block into the lowest gap that holds it: in time
// order, in reverse time order, and, for at most kMostCompared blocks, largest first and longest
// first (these compare each block with all others). Sizes are rounded up to the alignment.
constexpr size_t kMostCompared = 512;
Packing pack(std::span<const Lifetime> lifetimes);

// The most bytes that live at once (rounded as in pack), and the first step where they do. No
// packing can be smaller.
struct Peak {
  size_t bytes = 0, step = 0;
};
Peak peak_of(std::span<const Lifetime> lifetimes);

}  // namespace ridgeline
