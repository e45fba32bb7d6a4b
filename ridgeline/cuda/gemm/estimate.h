#pragma once

#include "ridgeline/cuda/gemm/launch.h"

// A guess at a variant's time in microseconds, for choosing without measuring. Fitted by hand to
// seven thin shapes on an H200; on those same shapes its choice is 9 % slower than the best in the
// geometric mean, 37 % at worst. Not tried on others.
namespace ridgeline::cuda {

struct GemmRates {
  int sms;
  // An SM's share of each, in bytes (flops) a microsecond, fitted on an H200.
  double l2 = 40e3;             // while few blocks stream operands once
  double l2_reused = 75e3;      // while tiles of a large product share operands
  double cluster = 15e3;        // partial sums to other blocks
  double store = 50e3;          // results
  double tensor_flops = 5.7e6;  // wgmma, 16-bit operands
};

// Tile m x n, k in stages, `split` blocks a tile, a ring of `ring` stages of stage_bytes.
inline double estimate_split(const GemmRates& rates, int blocks, int k_stages, int split, int ring,
                             double stage_bytes, double tile_elements) {
  const int per_block = ceil_div(k_stages, split);
  const int waves = ceil_div(blocks, rates.sms);
  const double exchange = tile_elements * 4 * (split - 1) / split / rates.cluster;
  const double us = 2.0 + 0.6 * (waves - 1) +
                    waves * (per_block * stage_bytes / rates.l2 + exchange) +
                    0.35 * (ceil_div(per_block, ring) - 1);
  // Clusters of 6 and 8 fell off (9.9 against 6.1 us at 2560 x 16 x 2560), perhaps because fewer of
  // them fit at once.
  return split > 5 ? 1.5 * us : us;
}

inline double estimate_persistent(const GemmRates& rates, int tiles, int k_stages, int cluster,
                                  double stage_bytes, double stage_flops, double tile_bytes) {
  const double stage = std::max(stage_bytes / rates.l2_reused, stage_flops / rates.tensor_flops);
  return 2.6 + (cluster > 1 ? 0.5 : 0.0) +
         ceil_div(tiles, rates.sms) * (k_stages * stage + tile_bytes / rates.store);
}

// All stages of all tiles shared out evenly; parts of tiles are written and read once.
inline double estimate_stream(const GemmRates& rates, int tiles, int k_stages, double stage_bytes,
                              double stage_flops, double tile_elements) {
  const double stage = std::max(stage_bytes / rates.l2_reused, stage_flops / rates.tensor_flops);
  const double parts = std::max(1.0, double(rates.sms) / tiles);  // to a tile
  return 2.8 + double(tiles) * k_stages / rates.sms * stage +
         tile_elements * (2 + 4 + 4 * parts) / rates.store;
}

// `rounds` fragments of k a warp, one after the other.
inline double estimate_thin(const GemmRates& rates, int blocks, int rounds, int split, int cols) {
  return 1.3 + ceil_div(blocks, rates.sms) * rounds * 0.2 + (split > 1 ? 0.3 : 0.0) + cols * 0.01;
}

// Results at the rate of memory; longer sums leave fewer warps room. A warp that takes several
// tiles has fewer to start: that pays from about 6 MB on.
inline double estimate_flat(int turns, int quads, double bytes) {
  return 1.6 + bytes / (quads == 1 ? 3.8e6 : 2.6e6) + (turns - 1) * (0.2 - 0.033e-6 * bytes);
}

// Always behind a wgmma variant, where there is one.
inline double estimate_mma(const GemmRates& rates, int blocks, int steps, int split) {
  return 12.5 + ceil_div(blocks, 4 * rates.sms) * ceil_div(steps, split) * 0.6 +
         (split > 1 ? 1.5 : 0.0);
}

}  // namespace ridgeline::cuda
