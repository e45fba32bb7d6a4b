#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ridgeline {

// A piece of memory and the steps, first to last inclusive, during which its contents matter.
struct Lifetime {
  size_t bytes = 0;
  size_t first = 0, last = 0;
};

struct Packing {
  std::vector<size_t> offsets;  // one a lifetime, aligned
  size_t total = 0;
};

// Offsets such that pieces that live at once do not overlap, in little memory: the best of several
// greedy orders (largest first, longest first, in time order), each placing a piece into the lowest
// gap that holds it. Sizes are rounded up to the alignment.
Packing pack(std::span<const Lifetime> lifetimes);

// The most bytes that live at once (rounded like pack does), and the first step when they do: no
// packing can be smaller.
struct Peak {
  size_t bytes = 0, step = 0;
};
Peak peak_of(std::span<const Lifetime> lifetimes);

}  // namespace ridgeline
