#include "ridgeline/cuda/generate/schedule.h"

#include <algorithm>
#include <limits>

namespace ridgeline::cuda::generate {
namespace {

constexpr int kWarps = 8;

// Multiply-adds a cycle of an SM that these kernels reach, roughly.
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

// Cycles that a phase takes whatever it computes: the barrier, and the way of the first operands
// and the last results.
constexpr double kPhase = 3200, kLatency = 800, kStripStage = 500, kBytesPerCycle = 48;
constexpr double kStripBytes = 26;  // a cycle, by the few loads that a block has under way
constexpr double kOutputs = 60, kUpdates = 300;
constexpr double kTileSlab = 100, kTileLatency = 1200;  // of a product from shared memory
double tile_rate(Math math) { return math == Math::tf32 ? 700 : 1400; }

int units(int64_t extent) { return int((extent + 15) / 16); }
int divide_up(int a, int b) { return (a + b - 1) / b; }
int chunks_of(int64_t depth, Math math) { return divide_up(int(depth), chunk_of(math)); }

// Those of them that a warpgroup makes from shared memory.
void tiled_products(int64_t rows, int64_t columns, int64_t depth, Math math, double each_unit,
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
    const double l2 = 128.0 * (tile_rows + tile_columns) / kBytesPerCycle;
    const double products = 2.0 * tile_rows * tile_columns * chunk_of(math) / tile_rate(math);
    plan.cycles = slabs * (std::max(l2, products) + kTileSlab) + kTileLatency + nt * each_unit;
    all->push_back(plan);
  }
}

// Ways to share a product out over the grid. `cycles` are those of one tile; each_unit: of what is
// done with 16 x 16 results.
std::vector<ProductPlan> grid_products(int64_t rows, int64_t columns, int64_t depth, Math math,
                                       Tiles tiles, double each_unit) {
  std::vector<ProductPlan> all;
  if (tiles != Tiles::never) tiled_products(rows, columns, depth, math, each_unit, &all);
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
        // What comes from L2: each row of the block's tile once.
        const double l2 = split * 16.0 * (mt * down + nt * across) * 64 / kBytesPerCycle;
        const double products = kWarps * double(mt * nt) * 256 * chunk_of(math) / rate_of(math);
        const int most = divide_up(chunks, split);
        const double cycles = most * std::max({loads, l2, products}) + kLatency +
                              mt * nt * each_unit + (split > 1 ? 150 : 0);
        ProductPlan plan{int(rows), int(columns), int(depth), mt, nt, split};
        plan.ring = std::max(1, std::min(std::clamp(16 / (2 * (mt + nt)), 2, 4), most));
        plan.down = down;
        plan.tiles = row_tiles * column_tiles;
        plan.cycles = cycles;
        all.push_back(plan);
      }
    }
  }
  return all;
}

// Warpgroups take operands as they are stored: fp32 numbers that are not rounded to tf32 they
// would cut off, and wider ones they do not multiply.
Tiles tiles_of(const Target& target, Math math, bool of_gradients) {
  const bool half = math == Math::bf16 || math == Math::fp16;
  return half || (math == Math::tf32 && !of_gradients) ? target.tiles : Tiles::never;
}

// The fastest in a phase of its own.
ProductPlan grid_product(int64_t rows, int64_t columns, int64_t depth, Math math,
                         const Target& target, bool of_gradients) {
  const auto cost = [&](const ProductPlan& plan) {
    return divide_up(plan.tiles, target.blocks) * plan.cycles + 0.1 * plan.tiles;
  };
  const auto all =
      grid_products(rows, columns, depth, math, tiles_of(target, math, of_gradients), kOutputs);
  ProductPlan best = *std::min_element(
      all.begin(), all.end(), [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
  best.cycles = cost(best);
  return best;
}

// The gradients of all weights, which share a phase: the longest tile may take so many cycles, and
// within them each product has as few tiles as it can. Cycles of the phase into `cycles`.
std::vector<ProductPlan> weight_products(const NetStep& net, const Target& target, double* cycles) {
  std::vector<std::vector<ProductPlan>> ways;
  std::vector<double> limits;
  // Updates that have moments to fetch and store are measured to be slower from tiles.
  Tiles tiles = tiles_of(target, net.math, true);
  const bool moments = net.adam() || net.layers[0].sgd_w->m;
  if (moments && tiles == Tiles::where_faster) tiles = Tiles::never;
  for (const NetLayer& layer : net.layers) {
    ways.push_back(grid_products(layer.out(), layer.in(), net.batch(), net.math, tiles, kUpdates));
    for (const ProductPlan& plan : ways.back()) limits.push_back(plan.cycles);
  }
  std::vector<ProductPlan> best;
  *cycles = std::numeric_limits<double>::infinity();
  for (const double limit : limits) {
    std::vector<ProductPlan> now;
    int tiles = 0;
    double longest = 0;
    for (const auto& of_layer : ways) {
      const ProductPlan* least = nullptr;
      for (const ProductPlan& plan : of_layer) {
        if (plan.cycles <= limit && (least == nullptr || plan.tiles < least->tiles)) least = &plan;
      }
      if (least == nullptr) break;
      now.push_back(*least);
      tiles += least->tiles;
      longest = std::max(longest, least->cycles);
    }
    if (now.size() < ways.size()) continue;
    const double time = divide_up(tiles, target.blocks) * longest;
    if (time >= *cycles) continue;
    *cycles = time;
    best = std::move(now);
  }
  return best;
}

// A product of a strip of rows by one block.
ProductPlan strip_product(int strip_units, int64_t columns, int64_t depth, Math math, bool shared) {
  ProductPlan plan{16 * strip_units, int(columns), int(depth)};
  plan.mt = strip_units;
  const int column_units = units(columns), chunks = chunks_of(depth, math);
  if (column_units >= kWarps) {
    plan.nt = column_units >= 2 * kWarps && strip_units <= 2 ? 2 : 1;
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
  // Few warps with something to do do not reach the rate.
  const double busy = std::min(1.0, double(column_units * plan.split) / kWarps);
  plan.cycles = kStripStage + std::max(bytes / kStripBytes, sums / (rate_of(math) * busy)) +
                (plan.split > 1 ? 150 : 0);
  return plan;
}

}  // namespace

int chunk_of(Math math) { return 64 / number_bytes(math); }
int number_bytes(Math math) {
  return math == Math::bf16 || math == Math::fp16 ? 2 : math == Math::fp64 ? 8 : 4;
}
int value_bytes(Math math) { return math == Math::fp64 ? 8 : 4; }

int64_t scratch_bytes(const ProductPlan& plan, Math math) {
  if (plan.tiled) {
    const int64_t rows = 64 * plan.down + 16 * plan.nt * (2 / plan.down);
    return rows * 128 * plan.ring + 1024;
  }
  return plan.split > 1 ? int64_t{kWarps} * plan.mt * plan.nt * 256 * value_bytes(math) : 0;
}

bool keeps_slopes(const NetLayer& layer, Math math) {
  if (layer.activation == nullptr) return layer.dropout != nullptr;
  if (layer.activation->kind == ActivationKind::relu) return false;
  if (!saves_output(layer.activation->kind)) return true;
  return layer.dropout != nullptr || math == Math::tf32;
}

size_t shared_bytes(const NetStep& net, const Schedule& schedule) {
  const Math math = net.math;
  const int64_t rows = 16 * schedule.strip_units, number = number_bytes(math);
  const auto operand = [&](int64_t width) {
    return rows * (up(width, std::max(chunk_of(math), 16)) + 32 / number) * number;
  };
  const size_t last = net.layers.size() - 1;
  int64_t bytes = 0, widest = 0;
  for (size_t l = 0; l < net.layers.size(); ++l) {
    if (!schedule.in_strip(l)) continue;
    if (l < last) {
      bytes += operand(net.layers[l].out());
      if (keeps_slopes(net.layers[l], math)) bytes += rows * up(net.layers[l].out(), 16) * number;
    }
    widest = std::max(widest, operand(net.layers[l].out()));
  }
  bytes += 2 * widest;                                                 // gradients, in turns
  bytes += rows * up(net.layers[last].out(), 16) * value_bytes(math);  // outputs
  bytes += rows * (8 + 4 + 4);                                         // losses, hits, labels
  bytes += rows * net.target_columns() * value_bytes(math);            // or values
  int64_t scratch = 0;
  for (const auto* plans : {&schedule.forward, &schedule.backward, &schedule.weights}) {
    for (const ProductPlan& plan : *plans) scratch = std::max(scratch, scratch_bytes(plan, math));
  }
  return size_t(bytes + scratch + 1024);
}

Schedule choose_schedule(const NetStep& net, const Target& target, int chain) {
  const Math math = net.math;
  const int layers = int(net.layers.size());
  const int64_t batch = net.batch();
  double weight_cycles = 0;
  const auto weights = weight_products(net, target, &weight_cycles);
  Schedule best;
  best.cycles = std::numeric_limits<double>::infinity();
  best.refusal = "wants more shared memory than there is";
  if (target.tiles == Tiles::always) chain = layers;
  for (int first = 0; first <= layers; ++first) {
    if (chain >= 0 && first != chain) continue;
    for (const int strip_units : {1, 2, 4}) {
      if (strip_units > 1 && 16 * (strip_units / 2) >= batch) continue;
      Schedule now;
      now.blocks = target.blocks;
      now.chain = first;
      now.strip_units = strip_units;
      now.strips = divide_up(int(batch), 16 * strip_units);
      const int rounds = divide_up(now.strips, now.blocks);
      now.weights = weights;
      double cycles = kPhase + weight_cycles;
      for (int l = 0; l < layers; ++l) {
        const int64_t in = net.layers[size_t(l)].in(), out = net.layers[size_t(l)].out();
        if (l < first) {
          now.forward.push_back(grid_product(batch, out, in, math, target, false));
          now.backward.push_back(l > 0 ? grid_product(batch, in, out, math, target, true)
                                       : ProductPlan{});
          cycles += now.forward.back().cycles + now.backward.back().cycles;
          cycles += (l > 0 ? 2 : 1) * (kPhase - kLatency);
        } else {
          now.forward.push_back(strip_product(strip_units, out, in, math, l > first));
          now.backward.push_back(l > 0 ? strip_product(strip_units, in, out, math, true)
                                       : ProductPlan{});
          cycles += rounds * (now.forward.back().cycles + now.backward.back().cycles);
        }
      }
      cycles += rounds * (kStripStage + 30.0 * strip_units * double(net.layers.back().out()) / 32);
      now.cycles = cycles;
      if (shared_bytes(net, now) > target.shared_bytes) continue;
      if (now.cycles < best.cycles) best = std::move(now);
    }
  }
  return best;
}

}  // namespace ridgeline::cuda::generate
