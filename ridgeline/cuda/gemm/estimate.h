#pragma once

#include <algorithm>

#include "ridgeline/cuda/gemm/launch.h"

// A guess at a variant's time in microseconds, for choosing what to measure. Fitted to overlapped
// launches of 105 thin shapes on an H200 (M = 512 to 8192, N = 16 to 256): the best of its first
// three was 0.4 % off the best of twelve on average (not fitted anew since splits start sooner).
namespace ridgeline::cuda {

struct GemmRates {
  int sms;
  // An SM's share of each, in bytes (flops) a microsecond, fitted on an H200.
  double l2 = 90e3;             // while few blocks stream operands once
  double l2_reused = 75e3;      // while tiles of a large product share operands
  double cluster = 30e3;        // partial sums to other blocks
  double store = 50e3;          // results
  double tensor_flops = 5.7e6;  // wgmma, 16-bit operands
};

// The part of a GPU's SMs that clusters of so many blocks can use at once: those of a
// cluster lie in one of its parts, which have 16 or 18 on an H200 (as the occupancy calls say).
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

// A tile of so many elements, k in stages, `split` blocks a tile, `per_sm` of them on a
// SM, a ring of `ring` stages of stage_bytes.
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

// Results at the rate of memory; longer sums leave fewer warps room. A warp that takes several
// tiles has fewer to start: that pays from about 6 MB on.
inline double estimate_flat(int iterations, int quads, double bytes) {
  return 1.6 + bytes / (quads == 1 ? 3.8e6 : 2.6e6) + (iterations - 1) * (0.2 - 0.033e-6 * bytes);
}

// Always behind a wgmma variant, where there is one.
inline double estimate_mma(const GemmRates& rates, int blocks, int steps) {
  return 12.5 + ceil_div(blocks, 4 * rates.sms) * steps * 0.6;
}

}  // namespace ridgeline::cuda
