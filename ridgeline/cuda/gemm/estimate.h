#pragma once

#include <algorithm>

#include "ridgeline/cuda/gemm/launch.h"

// An estimate of a variant's time in microseconds, to choose which variants to measure. It was
// fitted to overlapped launches of 105 thin shapes on an H200 (M = 512 to 8192, N = 16 to 256): the
// best of its first three was 0.4 % slower than the best of twelve on average. It has not been
// fitted again since the split-K variants start sooner.
namespace ridgeline::cuda {

struct GemmRates {
  int sms;
  // Rates per SM in bytes (flops) per microsecond, fitted on an H200.
  double l2 = 90e3;             // while few blocks stream operands once
  double l2_reused = 75e3;      // while tiles of a large product share operands
  double cluster = 30e3;        // partial sums to other blocks of a cluster
  double store = 50e3;          // results
  double tensor_flops = 5.7e6;  // wgmma, 16-bit operands
};

// The fraction of a GPU's SMs that clusters of this many blocks can use at once. A cluster must fit
// in one GPC, and these have 16 or 18 SMs on an H200 (according to the occupancy API).
inline double usable_by_clusters(int split) {
  switch (split) {
    case 1:
    case 2:
      return 1.0;
    case 3:
      return 0.886;
    case 5:
      return 0.833;
    case 6:
      return 0.773;
    default:
      return 0.909;
  }
}

// The time of a tile with this many elements and k in stages: `split` blocks per tile, `per_sm` of
// them per SM, and a ring of `ring` stages of stage_bytes.
inline double estimate_split(const GemmRates& rates, int blocks, int k_stages, int split,
                             int per_sm, int ring, double stage_bytes, double tile_elements) {
  const int per_block = ceil_div(k_stages, split);
  const int waves = ceil_div(blocks, int(per_sm * rates.sms * usable_by_clusters(split)));
  const int sharing = std::min(per_sm, ceil_div(blocks, rates.sms));
  const double exchange = tile_elements * 4 * (split - 1) / split / rates.cluster;
  return 1.7 + 1.0 * (waves - 1) +
         waves * (per_block * (0.01 + sharing * stage_bytes / rates.l2) + exchange +
                  tile_elements * 2 / rates.store) +
         0.15 * (ceil_div(per_block, ring) - 1);
}

inline double estimate_persistent(const GemmRates& rates, int tiles, int k_stages,
                                  double stage_bytes, double stage_flops, double tile_bytes) {
  const double stage = std::max(stage_bytes / rates.l2_reused, stage_flops / rates.tensor_flops);
  return 2.6 + ceil_div(tiles, rates.sms) * (k_stages * stage + tile_bytes / rates.store);
}

// Results are written at the rate of memory, and longer sums leave room for fewer warps. If a warp
// takes several tiles, fewer warps have to start, which pays off from about 6 MB on.
inline double estimate_flat(int iterations, int quads, double bytes) {
  return 1.6 + bytes / (quads == 1 ? 3.8e6 : 2.6e6) + (iterations - 1) * (0.2 - 0.033e-6 * bytes);
}

// Always slower than a wgmma variant, if there is one.
inline double estimate_mma(const GemmRates& rates, int blocks, int steps) {
  return 12.5 + ceil_div(blocks, 4 * rates.sms) * steps * 0.6;
}

}  // namespace ridgeline::cuda
