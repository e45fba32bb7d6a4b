#pragma once

// How products can be distributed, and the cycles that they are estimated to take.

#include "ridgeline/cuda/generate/schedule.h"

namespace ridgeline::cuda::generate {

// Cycles that a phase takes whatever it computes: the barrier, and the latency of the first
// operands and the last results.
constexpr double kPhase = 3200, kLatency = 800, kStripStage = 500;
// The cycles of a block for 16 x 16 numbers of the next batch.
constexpr double kGatherUnit = 150;

inline int divide_up(int a, int b) { return (a + b - 1) / b; }
inline int chunks_of(int64_t depth, Math math) { return divide_up(int(depth), chunk_of(math)); }

// Whether products over sums of this depth may be tiled.
Tiles tiles_of(const Target& target, Math math, int64_t depth);

// Candidates for splitting a product over the grid. `cycles` is for one tile; each_unit is the cost
// of what is done with 16 x 16 results.
std::vector<ProductPlan> grid_products(int64_t rows, int64_t columns, int64_t depth, Math math,
                                       bool of_gradients, const Target& target, Tiles tiles,
                                       double each_unit, const std::vector<int>& splits);

// The fastest candidate in a phase of its own.
ProductPlan grid_product(int64_t rows, int64_t columns, int64_t depth, Math math, bool of_gradients,
                         const Target& target);

// The product of a strip of rows by one block. `shared`: its rows are in shared memory.
ProductPlan strip_product(int strip_units, int64_t columns, int64_t depth, Math math, bool shared);

// The product of a wide strip, of which there are `strips`.
ProductPlan wide_product(int64_t columns, int64_t depth, Math math, bool shared, int strips,
                         const Target& target);

}  // namespace ridgeline::cuda::generate
