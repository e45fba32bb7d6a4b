#include "ridgeline/cuda/generate/products.h"

#include <algorithm>

namespace ridgeline::cuda::generate {
namespace {

// The multiply-adds per cycle and SM that these functions reach, roughly.
double rate_of(Math math) {
  switch (math) {
    case Math::bf16:
    case Math::fp16:
      return 900;
    case Math::tf32:
      return 450;
    default:
      return 100;
  }
}

constexpr double kBytesPerCycle = 48;
constexpr double kStripBytes = 26;  // per cycle, with the few loads that a block has in flight
constexpr double kOutputs = 60, kStripOutputs = 40;
// What each unit of a tile's warp needs to store its results by rows and transposed.
constexpr double kTileOutputs = 250;
// In sums of many chunks loads take longer than their share of the L1 cache's rate, and each turn
// of the ring at least so long, less where products are slow. Few chunks have been fetched before.
constexpr double kLongLoads = 0.8, kRingTurn = 2200, kSlowTurn = 1600;
double length_of(int chunks) { return std::clamp((chunks - 4) / 16.0, 0.0, 1.0); }
constexpr double kPartial = 250;                        // per unit whose sums are stored unreduced
constexpr double kTileSlab = 100, kTileLatency = 1200;  // for a product from shared memory
double tile_rate(Math math) { return math == Math::fp32 ? 250 : math == Math::tf32 ? 700 : 1400; }
// What a slab takes beside its products: much if operands go through registers.
double slab_cycles(Math math, bool of_gradients) {
  return math == Math::fp32 ? 700 : math == Math::tf32 && of_gradients ? 500 : kTileSlab;
}
// The shortest sums of fp32 products that are made from tf32 numbers: their factors' errors must be
// less than what the rounding of such sums may be.
constexpr int64_t kLeastSplitDepth = 64;

// The candidates that a warpgroup computes from shared memory.
void tiled_products(int64_t rows, int64_t columns, int64_t depth, Math math, double each_unit,
                    bool of_gradients, const Target& target, const std::vector<int>& splits,
                    std::vector<ProductPlan>* all) {
  const int slabs = divide_up(chunks_of(depth, math), 2);
  struct Tile {
    int nt, down;
  };
  for (const auto& [nt, down] : {Tile{8, 2}, Tile{4, 2}, Tile{4, 1}, Tile{2, 1}}) {
    const int tile_rows = 64 * down, tile_columns = 16 * nt * (2 / down);
    ProductPlan plan{int(rows), int(columns), int(depth), 1, nt};
    plan.tiled = true;
    plan.down = down;
    plan.tiles = divide_up(int(rows), tile_rows) * divide_up(int(columns), tile_columns);
    const double bytes = 128.0 * (tile_rows + tile_columns);
    const double products = 2.0 * tile_rows * tile_columns * chunk_of(math) / tile_rate(math);
    const int tiles = plan.tiles;
    for (const int parts : splits) {
      if (parts > 1 && slabs < 2 * parts) continue;
      plan.parts = parts;
      plan.tiles = tiles * parts;
      const double l2 = bytes * std::max(1 / kBytesPerCycle,
                                         std::min(plan.tiles, target.blocks) / target.l2_bytes);
      const double each_slab = std::max(l2, products) + slab_cycles(math, of_gradients);
      plan.cycles = divide_up(slabs, parts) * each_slab + kTileLatency +
                    nt * (parts > 1 ? kPartial : std::max(each_unit, kTileOutputs));
      all->push_back(plan);
    }
  }
}

}  // namespace

std::vector<ProductPlan> grid_products(int64_t rows, int64_t columns, int64_t depth, Math math,
                                       bool of_gradients, const Target& target, Tiles tiles,
                                       double each_unit, const std::vector<int>& splits) {
  std::vector<ProductPlan> all;
  if (tiles != Tiles::never) {
    tiled_products(rows, columns, depth, math, each_unit, of_gradients, target, splits, &all);
  }
  if (tiles == Tiles::always) return all;
  const bool full_precision = math == Math::fp32 || math == Math::fp64;
  const int chunks = chunks_of(depth, math);
  struct Tile {
    int mt, nt;
  };
  for (const auto& [mt, nt] : {Tile{1, 1}, Tile{1, 2}, Tile{2, 1}, Tile{2, 2}, Tile{2, 4}}) {
    if (full_precision && mt * nt > 4) continue;
    for (const int split : {1, 2, 4, 8}) {
      if (split > 1 && (mt * nt > 2 || chunks < 2 * split)) continue;
      const int groups = kWarps / split;
      for (int down = 1; down <= groups; down *= 2) {
        const int across = groups / down;
        const int row_tiles = divide_up(units(rows), mt * down);
        const int column_tiles = divide_up(units(columns), nt * across);
        const double loads = kWarps * 2.0 * (mt + nt) * 512 / 64;  // through L1
        // Traffic from L2: each row of the block's tile once.
        const double l2 = split * 16.0 * (mt * down + nt * across) * 64 / kBytesPerCycle;
        const double products = kWarps * double(mt * nt) * 256 * chunk_of(math) / rate_of(math);
        for (const int parts : splits) {
          if (parts > 1 && (chunks % parts != 0 || chunks / parts < 4 * split)) continue;
          const int most = divide_up(chunks / parts, split);
          ProductPlan plan{int(rows), int(columns), int(depth), mt, nt, split};
          plan.ring = std::max(1, std::min(std::clamp(16 / (2 * (mt + nt)), 2, 4), most));
          plan.down = down;
          plan.parts = parts;
          plan.tiles = row_tiles * column_tiles * parts;
          const double length = length_of(most);
          const double longer = full_precision ? 0 : kLongLoads * length;
          const double turn = length * (full_precision ? kSlowTurn : kRingTurn);
          const double each = std::max({loads * (1 + longer), l2, products, turn / plan.ring});
          plan.cycles = most * each + kLatency + (split > 1 ? 150 : 0) +
                        mt * nt * (parts > 1 ? kPartial : each_unit);
          all.push_back(plan);
        }
      }
    }
  }
  return all;
}

// Warpgroups cannot multiply fp64, and fp32 only in sums of many terms.
Tiles tiles_of(const Target& target, Math math, int64_t depth) {
  const bool refused = math == Math::fp64 || (math == Math::fp32 && depth < kLeastSplitDepth);
  return refused ? Tiles::never : target.tiles;
}

ProductPlan grid_product(int64_t rows, int64_t columns, int64_t depth, Math math, bool of_gradients,
                         const Target& target) {
  const auto cost = [&](const ProductPlan& plan) {
    return divide_up(plan.tiles, target.blocks) * plan.cycles + 0.1 * plan.tiles;
  };
  const auto all = grid_products(rows, columns, depth, math, of_gradients, target,
                                 tiles_of(target, math, depth), kOutputs, {1});
  ProductPlan best = *std::min_element(
      all.begin(), all.end(), [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
  best.cycles = cost(best);
  return best;
}

ProductPlan wide_product(int64_t columns, int64_t depth, Math math, bool shared, int strips,
                         const Target& target) {
  ProductPlan plan{64, int(columns), int(depth)};
  plan.tiled = plan.in_strip = true;
  plan.shared = shared;
  plan.nt = columns <= 64 ? 2 : columns <= 128 ? 4 : 8;
  const int slabs = divide_up(chunks_of(depth, math), 2), width = 32 * plan.nt;
  const double bytes = 128.0 * (width + (shared ? 0 : 64));
  const double l2 =
      bytes * std::max(1 / kBytesPerCycle, std::min(strips, target.blocks) / target.l2_bytes);
  const double products = 64.0 * width * 2 * chunk_of(math) / tile_rate(math);
  plan.cycles = kTileLatency + slabs * (std::max(l2, products) + kTileSlab) +
                std::min(plan.nt, units(columns)) * kTileOutputs;
  return plan;
}

ProductPlan strip_product(int strip_units, int64_t columns, int64_t depth, Math math, bool shared) {
  ProductPlan plan{16 * strip_units, int(columns), int(depth)};
  plan.mt = strip_units;
  const int column_units = units(columns), chunks = chunks_of(depth, math);
  if (column_units >= kWarps) {
    plan.nt = column_units >= 2 * kWarps && strip_units <= 2 ? 2 : 1;
    // With a short sum, only the neighbouring columns keep several loads in flight.
    if (chunks <= 2 && column_units >= 4 * kWarps && strip_units == 1) plan.nt = 4;
  } else {
    plan.split = kWarps;
    while (plan.split * column_units > kWarps || (plan.split > 1 && plan.split > chunks)) {
      plan.split /= 2;
    }
  }
  const int loads = shared ? 2 * plan.nt : 2 * (plan.nt + plan.mt);
  plan.ring = std::clamp(divide_up(chunks, plan.split), 1, std::max(2, (shared ? 16 : 32) / loads));
  const double bytes = 16.0 * column_units * chunks * 64;
  const double sums = 256.0 * strip_units * column_units * chunks * chunk_of(math);
  // A few busy warps do not reach the full rate.
  const double busy = std::min(1.0, double(column_units * plan.split) / kWarps);
  // Many results are stored while little is multiplied.
  const int stored = strip_units > 1 ? column_units : std::max(0, column_units - 2 * kWarps);
  const double stores = kStripOutputs * strip_units * stored;
  plan.cycles = kStripStage + std::max(bytes / kStripBytes, sums / (rate_of(math) * busy)) +
                stores + (plan.split > 1 ? 150 : 0);
  return plan;
}

int chunk_of(Math math) { return 64 / number_bytes(math); }
int number_bytes(Math math) {
  return math == Math::bf16 || math == Math::fp16 ? 2 : math == Math::fp64 ? 8 : 4;
}
int value_bytes(Math math) { return math == Math::fp64 ? 8 : 4; }

int64_t scratch_bytes(const ProductPlan& plan, Math math) {
  if (plan.in_strip) {
    const int64_t rows = (plan.shared ? 0 : 64) + 32 * plan.nt;
    const int slabs = divide_up(chunks_of(plan.depth, math), 2);
    return 128 * rows * std::min(plan.ring, slabs) + 1024;
  }
  if (plan.tiled) {
    const int64_t rows = 64 * plan.down, columns = 16 * plan.nt * (2 / plan.down);
    const int slabs = divide_up(divide_up(chunks_of(plan.depth, math), 2), plan.parts);
    // The small parts of split numbers lie behind the whole ring.
    const int ring = math == Math::fp32 ? plan.ring : std::min(plan.ring, slabs);
    return 128 * ((rows + columns) * ring + (math == Math::fp32 ? 2 * columns : 0)) + 1024;
  }
  return plan.split > 1 ? int64_t{kWarps} * plan.mt * plan.nt * 256 * value_bytes(math) : 0;
}

}  // namespace ridgeline::cuda::generate
