#include "ridgeline/cuda/generate/schedule.h"

#include <algorithm>
#include <limits>

namespace ridgeline::cuda::generate {
namespace {

constexpr int kWarps = 8;

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

// Cycles that a phase takes whatever it computes: the barrier, and the latency of the first
// operands and the last results.
constexpr double kPhase = 3200, kLatency = 800, kStripStage = 500, kBytesPerCycle = 48;
constexpr double kStripBytes = 26;  // per cycle, with the few loads that a block has in flight
constexpr double kOutputs = 60, kStripOutputs = 40;
// Per cycle and SM, for what updates fetch and store, in the L2 cache and beyond it.
constexpr double kStreamBytes = 30, kMemoryBytes = 18;
// What each of several units of a warp needs to store its results by rows and transposed.
constexpr double kFurtherOutputs = 250;
// In sums of many chunks loads take longer than their share of the L1 cache's rate, and each turn
// of the ring at least so long, less where products are slow. Few chunks have been fetched before.
constexpr double kLongLoads = 0.8, kRingTurn = 2200, kSlowTurn = 1600;
double length_of(int chunks) { return std::clamp((chunks - 4) / 16.0, 0.0, 1.0); }
// Splitting gradients into parts must save more than the additional barrier and the exchange of
// sums. According to measurements, networks with a smaller estimated gain become slower.
constexpr double kLatePhase = 3 * kPhase;
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

int units(int64_t extent) { return int((extent + 15) / 16); }
int divide_up(int a, int b) { return (a + b - 1) / b; }
int chunks_of(int64_t depth, Math math) { return divide_up(int(depth), chunk_of(math)); }

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
                    nt * (parts > 1 ? kPartial : std::max(each_unit, kFurtherOutputs));
      all->push_back(plan);
    }
  }
}

// Candidates for splitting a product over the grid. `cycles` is for one tile; each_unit is the cost
// of what is done with 16 x 16 results.
std::vector<ProductPlan> grid_products(int64_t rows, int64_t columns, int64_t depth, Math math,
                                       bool of_gradients, const Target& target, Tiles tiles,
                                       double each_unit, const std::vector<int>& splits = {1}) {
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
          const double further = (mt * nt - 1) * std::max(each_unit, kFurtherOutputs);
          plan.cycles = most * each + kLatency + (split > 1 ? 150 : 0) +
                        (parts > 1 ? mt * nt * kPartial : each_unit + further);
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

// The fastest candidate in a phase of its own.
ProductPlan grid_product(int64_t rows, int64_t columns, int64_t depth, Math math, bool of_gradients,
                         const Target& target) {
  const auto cost = [&](const ProductPlan& plan) {
    return divide_up(plan.tiles, target.blocks) * plan.cycles + 0.1 * plan.tiles;
  };
  const auto all = grid_products(rows, columns, depth, math, of_gradients, target,
                                 tiles_of(target, math, depth), kOutputs);
  ProductPlan best = *std::min_element(
      all.begin(), all.end(), [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
  best.cycles = cost(best);
  return best;
}

// The bytes that the update of a weight moves: itself, its states, and the copies that products
// read.
double update_bytes(const NetStep& net) {
  const int states = net.adam() ? 2 : net.layers[0].sgd_w->m ? 1 : 0;
  return 2.0 * (states * value_bytes(net.math) + double(size_of(net.kept()))) +
         2.0 * number_bytes(net.math);
}

// The percentage of the states that are to leave the L2 cache first. By measurements it holds about
// half of its 50 MB for all SMs, and what products read stays there best if most states leave.
int leaving_states(const NetStep& net) {
  double weights = 0;
  for (const NetLayer& layer : net.layers) weights += double(layer.out()) * double(layer.in());
  return weights * update_bytes(net) / 2 > 20e6 ? 85 : 0;
}

// The products for the gradients of all weights, which share a phase. For each limit on the cycles
// of the longest tile, every product takes as few tiles as it can within that limit. `cycles`
// receives the cycles of the phase and of the phase of late updates.
std::vector<ProductPlan> weight_products(const NetStep& net, const Target& target, double* cycles) {
  std::vector<std::vector<ProductPlan>> ways;
  std::vector<double> limits;
  const Tiles tiles = tiles_of(target, net.math, net.batch());
  const double bytes = update_bytes(net);
  const double rate = leaving_states(net) > 0 ? kMemoryBytes : kStreamBytes;
  // A norm needs whole gradients.
  const std::vector<int> splits = net.norm != nullptr || !target.parts
                                      ? std::vector{1}
                                      : std::vector{1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
  for (const NetLayer& layer : net.layers) {
    ways.push_back(grid_products(layer.out(), layer.in(), net.batch(), net.math, true, target,
                                 tiles, kWarps * 256 * bytes / rate, splits));
    if (tiles == Tiles::always &&
        std::ranges::any_of(ways.back(), [](const auto& plan) { return plan.parts > 1; })) {
      std::erase_if(ways.back(), [](const auto& plan) { return plan.parts == 1; });
    }
    for (const ProductPlan& plan : ways.back()) limits.push_back(plan.cycles);
  }
  std::sort(limits.begin(), limits.end());
  std::vector<ProductPlan> best;
  *cycles = std::numeric_limits<double>::infinity();
  // Within a limit the fewest tiles may be those of parts, which are not worth it for all limits.
  for (const bool in_parts : {false, true}) {
    double last = 0;
    for (const double limit : limits) {
      if (limit < 1.02 * last) continue;  // hardly a different choice
      last = limit;
      std::vector<ProductPlan> now;
      int tiles = 0;
      double longest = 0, all = 0, late = 0;
      for (const auto& of_layer : ways) {
        const ProductPlan* least = nullptr;
        for (const ProductPlan& plan : of_layer) {
          const bool possible = plan.cycles <= limit && (in_parts || plan.parts == 1);
          if (possible && (least == nullptr || plan.tiles < least->tiles)) least = &plan;
        }
        if (least == nullptr) break;
        now.push_back(*least);
        tiles += least->tiles;
        longest = std::max(longest, least->cycles);
        all += least->tiles * least->cycles;
        if (least->parts > 1) {
          late += double(least->rows) * least->columns *
                  (bytes + least->parts * value_bytes(net.math)) / (rate * target.blocks);
        }
      }
      if (now.size() < ways.size()) continue;
      // Of several tiles per block the last ones end at different times.
      const double time = (tiles <= target.blocks ? longest : all / target.blocks + longest / 2) +
                          (late > 0 ? kLatePhase + late : 0);
      if (time >= *cycles) continue;
      *cycles = time;
      best = std::move(now);
    }
  }
  return best;
}

// Whether strips from layer `first` on can be wide.
bool can_be_wide(const NetStep& net, const Target& target, int first) {
  bool can = value_bytes(net.math) == 4 && number_bytes(net.math) == 2 &&
             target.tiles != Tiles::never && target.wide && first < int(net.layers.size());
  for (size_t l = 0; l < net.layers.size(); ++l) {
    can &= !net.layers[l].norm && (int(l) < first || net.layers[l].out() <= 256);
    can &= l == 0 || int(l) < first || net.layers[l].in() <= 256;
  }
  return can;
}

// The product of a wide strip.
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
                std::min(plan.nt, units(columns)) * kFurtherOutputs;
  return plan;
}

}  // namespace

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

bool keeps_slopes(const NetLayer& layer, Math math) {
  if (layer.activation == nullptr) return layer.dropout != nullptr;
  if (layer.activation->kind == ActivationKind::relu) return false;
  if (!saves_output(layer.activation->kind)) return true;
  return layer.dropout != nullptr || math == Math::tf32;
}

int64_t norm_scratch_bytes(const NetStep& net, const Schedule& schedule) {
  int64_t most = 0;
  for (const NetLayer& layer : net.layers) {
    if (layer.norm)
      most = std::max({most, int64_t{16} * schedule.strip_units, up(layer.out(), 16)});
  }
  return 2 * most * value_bytes(net.math);
}

namespace {
// As shared_bytes(), for wide strips, in which the gradient of a layer's outputs replaces them.
size_t wide_shared_bytes(const NetStep& net, const Schedule& schedule) {
  const Math math = net.math;
  constexpr int64_t kRows = 64, kAlign = 1024;
  int64_t bytes = kAlign;
  for (size_t l = size_t(schedule.chain); l < net.layers.size(); ++l) {
    const int64_t width = net.layers[l].out();
    bytes += kRows * up(width, 64) * number_bytes(math);  // outputs, or the last gradient
    if (keeps_slopes(net.layers[l], math)) bytes += up(kRows * up(width, 16) * 4, kAlign);
  }
  bytes += up(kRows * up(net.layers.back().out(), 16) * value_bytes(math), kAlign);
  bytes += 3 * kAlign;  // losses, hits, labels
  bytes += up(kRows * net.target_columns() * value_bytes(math), kAlign);
  int64_t scratch = 0;
  for (const auto* plans : {&schedule.forward, &schedule.backward, &schedule.weights}) {
    for (const ProductPlan& plan : *plans) scratch = std::max(scratch, scratch_bytes(plan, math));
  }
  return size_t(bytes + scratch + kAlign);
}
}  // namespace

size_t shared_bytes(const NetStep& net, const Schedule& schedule) {
  const Math math = net.math;
  const int64_t rows = 16 * schedule.strip_units, number = number_bytes(math);
  const auto operand = [&](int64_t width) {
    return rows * (up(width, std::max(chunk_of(math), 16)) + 32 / number) * number;
  };
  const size_t last = net.layers.size() - 1;
  if (schedule.wide) return wide_shared_bytes(net, schedule);
  int64_t bytes = 0, widest = 0;
  if (schedule.chain > 0 && over_batch(net.layers[size_t(schedule.chain) - 1])) {
    bytes += 2 * up(net.layers[size_t(schedule.chain) - 1].out(), 16) * value_bytes(math) + 256;
  }
  for (size_t l = 0; l < net.layers.size(); ++l) {
    if (!schedule.in_strip(l)) continue;
    if (l < last) {
      bytes += operand(net.layers[l].out());
      if (keeps_slopes(net.layers[l], math)) bytes += rows * up(net.layers[l].out(), 16) * number;
      if (net.layers[l].norm) {
        bytes += rows * (up(net.layers[l].out(), 16) * number + 2 * value_bytes(math)) + 3 * 128;
      }
    }
    widest = std::max(widest, operand(net.layers[l].out()));
  }
  bytes += 2 * widest;                                                 // gradients, double buffered
  bytes += rows * up(net.layers[last].out(), 16) * value_bytes(math);  // outputs
  bytes += rows * (8 + 4 + 4);                                         // losses, hits, labels
  bytes += rows * net.target_columns() * value_bytes(math);            // or values
  int64_t scratch = norm_scratch_bytes(net, schedule);
  for (const auto* plans : {&schedule.forward, &schedule.backward, &schedule.weights}) {
    for (const ProductPlan& plan : *plans) scratch = std::max(scratch, scratch_bytes(plan, math));
  }
  return size_t(bytes + scratch + 1024);
}

// Makes the rings of tiled products as deep as they may be.
void deepen_rings(const NetStep& net, const Target& target, Schedule* schedule) {
  for (int ring = target.ring; ring >= 4; --ring) {
    for (auto* plans : {&schedule->forward, &schedule->backward, &schedule->weights}) {
      for (ProductPlan& plan : *plans) {
        if (!plan.tiled) continue;
        const int slabs = divide_up(divide_up(chunks_of(plan.depth, net.math), 2), plan.parts);
        plan.ring = std::clamp(slabs + 2, 4, ring);
      }
    }
    if (shared_bytes(net, *schedule) <= target.shared_bytes) return;
  }
}

Schedule choose_schedule(const NetStep& net, const Target& target, int chain) {
  constexpr int kWideRows = 0;  // stands for wide strips
  const Math math = net.math;
  const int layers = int(net.layers.size());
  const int64_t batch = net.batch();
  double weight_cycles = 0;
  const auto weights = weight_products(net, target, &weight_cycles);
  Schedule best;
  best.cycles = std::numeric_limits<double>::infinity();
  best.refusal = "wants more shared memory than there is";
  if (target.tiles == Tiles::always) chain = layers;
  int lowest = 0;  // strips begin above the layers with batch normalisation
  for (int l = 0; l < layers; ++l) lowest = over_batch(net.layers[size_t(l)]) ? l + 1 : lowest;
  for (int first = lowest; first <= layers; ++first) {
    if (chain >= 0 && first != chain) continue;
    for (const int rows : {16, 32, 64, kWideRows}) {
      const bool wide = rows == kWideRows;
      const int strip_units = wide ? 4 : rows / 16;
      if (wide ? !can_be_wide(net, target, first)
               : strip_units > 1 && 16 * (strip_units / 2) >= batch) {
        continue;
      }
      Schedule now;
      now.wide = wide;
      now.blocks = target.blocks;
      now.chain = first;
      now.strip_units = strip_units;
      now.strips = divide_up(int(batch), 16 * strip_units);
      const int rounds = divide_up(now.strips, now.blocks);
      now.weights = weights;
      now.leaving = target.leaving >= 0             ? target.leaving
                    : target.tiles == Tiles::always ? 50
                                                    : leaving_states(net);
      double cycles = kPhase + weight_cycles;
      for (int l = 0; l < layers; ++l) {
        const int64_t in = net.layers[size_t(l)].in(), out = net.layers[size_t(l)].out();
        if (l < first) {
          now.forward.push_back(grid_product(batch, out, in, math, false, target));
          now.backward.push_back(l > 0 ? grid_product(batch, in, out, math, true, target)
                                       : ProductPlan{});
          cycles += now.forward.back().cycles + now.backward.back().cycles;
          cycles += (l > 0 ? 2 : 1) * (kPhase - kLatency);
        } else {
          const auto product = [&](int64_t columns, int64_t depth, bool shared) {
            return wide ? wide_product(columns, depth, math, shared, now.strips, target)
                        : strip_product(strip_units, columns, depth, math, shared);
          };
          now.forward.push_back(product(out, in, l > first));
          now.backward.push_back(l > 0 ? product(in, out, true) : ProductPlan{});
          now.strip_cycles += rounds * (now.forward.back().cycles + now.backward.back().cycles);
        }
      }
      for (int l = 0; l < layers; ++l) {
        const NetLayer& layer = net.layers[size_t(l)];
        if (!layer.norm) continue;
        const bool forward_in_strip = l + 1 >= first;
        const bool backward_in_strip = forward_in_strip && !over_batch(layer);
        const double pass = kStripStage + 0.05 * strip_units * 16 * double(layer.out());
        cycles += forward_in_strip ? rounds * pass : kPhase + pass;
        cycles += backward_in_strip ? rounds * pass : kPhase + pass;
      }
      now.strip_cycles +=
          rounds * (kStripStage + 30.0 * strip_units * double(net.layers.back().out()) / 32);
      now.cycles =
          cycles + now.strip_cycles - (wide && target.tiles == Tiles::wide_strips ? 1e9 : 0);
      if (shared_bytes(net, now) > target.shared_bytes) continue;
      if (now.cycles < best.cycles) best = std::move(now);
    }
  }
  // The sums of a norm would depend on which block took which tile.
  int tiles = 0;
  for (const ProductPlan& plan : best.weights) tiles += plan.tiles;
  best.takes_tickets = (tiles > target.blocks || target.tiles == Tiles::always) &&
                       net.norm == nullptr && target.tickets;
  if (best.refusal.empty()) deepen_rings(net, target, &best);
  return best;
}

}  // namespace ridgeline::cuda::generate
