#include "ridgeline/cuda/generate/schedule.h"

#include <algorithm>
#include <limits>

#include "ridgeline/cuda/generate/products.h"

namespace ridgeline::cuda::generate {
namespace {

// Per cycle and SM, for what updates fetch and store, in the L2 cache and beyond it.
constexpr double kStreamBytes = 30, kMemoryBytes = 18;
// Splitting gradients into parts must save more than the additional barrier and the exchange of
// sums. According to measurements, networks with a smaller estimated gain become slower.
constexpr double kLatePhase = 3 * kPhase;

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
      // Of several large tiles per block, whose states come from memory, the last end far too late.
      const bool large = std::ranges::any_of(now, [](const ProductPlan& plan) {
        return plan.tiled ? plan.nt * plan.down == 16 : plan.mt * plan.nt == 8;
      });
      if (large && tiles > target.blocks && leaving_states(net) > 0) continue;
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

}  // namespace

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
  scratch = std::max(scratch, conv_scratch_bytes(net, schedule.convolutions));
  bytes += conv_shared_bytes(net, schedule.convolutions, schedule.blocks);
  return size_t(bytes + scratch + 1024);
}

// Makes the rings of tiled products as deep as shared memory allows: first all of them alike, then
// those that have room for more slabs in what others need.
void deepen_rings(const NetStep& net, const Target& target, Schedule* schedule) {
  constexpr int kLeast = 4, kMost = 7, kAll = 10;
  std::vector<ProductPlan*> tiled;
  for (auto* plans : {&schedule->forward, &schedule->backward, &schedule->weights}) {
    for (ProductPlan& plan : *plans) {
      if (plan.tiled) tiled.push_back(&plan);
    }
  }
  const auto wanted = [&](const ProductPlan& plan) {  // all slabs before the first is multiplied
    return divide_up(divide_up(chunks_of(plan.depth, net.math), 2), plan.parts) + 2;
  };
  for (int ring = kMost; ring >= kLeast; --ring) {
    for (ProductPlan* plan : tiled) plan->ring = std::clamp(wanted(*plan), kLeast, ring);
    if (shared_bytes(net, *schedule) <= target.shared_bytes) break;
  }
  const size_t bytes = shared_bytes(net, *schedule);
  for (ProductPlan* plan : tiled) {
    const int ring = plan->ring;
    plan->ring = std::min(wanted(*plan), kAll);
    while (plan->ring > ring && shared_bytes(net, *schedule) > bytes) --plan->ring;
    plan->ring = std::max(plan->ring, ring);
  }
}

namespace {

// The best schedule if `others` bytes of shared memory are left to all but convolutions.
Schedule choose_schedule(const NetStep& net, const Target& target, int chain, int64_t others) {
  constexpr int kWideRows = 0;  // stands for wide strips
  const Math math = net.math;
  const int layers = int(net.layers.size()), lowest_gradient = int(net.lowest_gradient());
  const int64_t batch = net.batch();
  double weight_cycles = 0;
  const auto weights = weight_products(net, target, &weight_cycles);
  const auto convolutions = conv_plans(net, target.blocks, int64_t(target.shared_bytes) - others);
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
      now.convolutions = convolutions;
      now.leaving = target.leaving >= 0             ? target.leaving
                    : target.tiles == Tiles::always ? 50
                                                    : leaving_states(net);
      double cycles = kPhase + weight_cycles;
      for (int l = 0; l < layers; ++l) {
        const int64_t in = net.layers[size_t(l)].in(), out = net.layers[size_t(l)].out();
        if (l < first) {
          now.forward.push_back(grid_product(batch, out, in, math, false, target));
          now.backward.push_back(l >= lowest_gradient
                                     ? grid_product(batch, in, out, math, true, target)
                                     : ProductPlan{});
          cycles += now.forward.back().cycles + now.backward.back().cycles;
          cycles += (l >= lowest_gradient ? 2 : 1) * (kPhase - kLatency);
        } else {
          const auto product = [&](int64_t columns, int64_t depth, bool shared) {
            return wide ? wide_product(columns, depth, math, shared, now.strips, target)
                        : strip_product(strip_units, columns, depth, math, shared);
          };
          now.forward.push_back(product(out, in, l > first));
          now.backward.push_back(l >= lowest_gradient ? product(in, out, true) : ProductPlan{});
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
      // If only the loss is in strips, the gather of a long batch is hardly hidden.
      const double gathered = double(units(batch)) * units(net.layers[0].in());
      if (first == layers && gathered >= 1024) cycles += kGatherUnit * gathered / target.blocks;
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

}  // namespace

Schedule choose_schedule(const NetStep& net, const Target& target, int chain) {
  if (net.convolutions.empty()) return choose_schedule(net, target, chain, 0);
  Target own = target;
  // Tiles would take the shared memory that holds the images of convolutions.
  own.tiles = Tiles::never;
  Schedule schedule;
  for (const int64_t others : {16, 32, 64, 128}) {
    schedule = choose_schedule(net, own, chain, others * 1024);
    if (schedule.refusal.empty()) break;
  }
  return schedule;
}

}  // namespace ridgeline::cuda::generate
