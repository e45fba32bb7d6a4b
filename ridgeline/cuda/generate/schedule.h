#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ridgeline/cuda/generate/conv_plan.h"

namespace ridgeline::cuda::generate {

// Whether products go through shared memory. The others are for tests: with `always` all layers are
// phases of the grid, with `wide_strips` all layers are in wide strips if they can be.
enum class Tiles : uint8_t { never, where_faster, always, wide_strips };

// The device that the function is generated for.
struct Target {
  int architecture = 90;  // 10 * major + minor
  int blocks = 132;       // resident at a time: the number of SMs
  size_t shared_bytes = 227 * 1024;
  Tiles tiles = Tiles::where_faster;
  bool parts = true;       // whether gradients over long batches may be split into parts
  bool wide = true;        // whether strips may be wide
  bool tickets = true;     // whether tiles may be handed out one by one
  double l2_bytes = 5200;  // that the L2 cache gives all SMs per cycle
  int leaving = -1;        // percent of the states that leave the L2 cache first; < 0: as estimated
};

// How a product is distributed, see product.cuh.
struct ProductPlan {
  int rows = 0, columns = 0, depth = 0;  // of the results, and the length of the sums
  int mt = 1, nt = 1, split = 1, ring = 4;
  int down = 1;  // vertically adjacent groups of a block (grid products)
  // Computed by warpgroups from shared memory (grid products); `down` counts those.
  bool tiled = false;
  bool in_strip = false;  // of a wide strip
  bool shared = false;    // the rows of a strip are in shared memory
  int parts = 1;  // parts of the depth, which several blocks sum; they are added after a barrier
  int tiles = 0;  // tiles for blocks to take; each part counts as a tile
  double cycles = 0;  // estimated
};

// A training step as phases with grid barriers between them:
//   1. The forward pass of layers 0 .. chain - 1, one phase each, with tiles over all blocks. A
//      normalised layer has a further phase, except for the last of these layers, which the strips
//      normalise.
//   2. Strips of rows, one per block: layers chain .. last, the loss, and the gradients of those
//      layers' inputs.
//   3. The gradients of the inputs of layers chain - 1 .. 1, one phase each.
//   4. The gradients of all weights, and the updates.
// `chain` may equal the number of layers; the strips then compute only the loss.
// Convolutions are phases before and after these, see source_conv.cpp.
struct Schedule {
  int blocks = 0;
  int chain = 0;
  int strip_units = 1;  // units of 16 rows per strip
  int strips = 0;
  double strip_cycles = 0;  // estimated, of a block for its strips
  bool wide = false;        // strips of 64 rows whose products are tiled
  int leaving = 0;          // percent of weights' states that leave the L2 cache first
  // Whether blocks take the next tile of the gradients of weights that is left, instead of turns.
  bool takes_tickets = false;
  std::vector<ProductPlan> forward, backward, weights;  // by layer; backward[0] may be empty
  std::vector<ConvPlan> convolutions;
  double cycles = 0;
  std::string refusal;

  // Whether gradients of weights are stored in parts and applied after one more barrier.
  bool late_updates() const {
    for (const ProductPlan& plan : weights) {
      if (plan.parts > 1) return true;
    }
    return false;
  }
  bool in_strip(size_t layer) const { return int(layer) >= chain; }
};

// Values per chunk of 64 bytes, and bytes per value, of operands.
int chunk_of(Math math);
int number_bytes(Math math);
int value_bytes(Math math);  // bytes of a sum or an updated value
inline int64_t up(int64_t extent, int64_t to) { return (extent + to - 1) / to * to; }
constexpr int kWarps = 8;  // of a block
inline int units(int64_t extent) { return int((extent + 15) / 16); }

// Whether a normalised layer is normalised over the batch, which takes a grid barrier.
inline bool over_batch(const NetLayer& layer) { return layer.norm.batch != nullptr; }

// Bytes of shared memory that a product needs for its sums or operands.
int64_t scratch_bytes(const ProductPlan& plan, Math math);

// Whether f' is stored beside a layer's y, because it cannot be computed from what products read.
bool keeps_slopes(const NetLayer& layer, Math math);

// Bytes of shared memory for the statistics of normalisations.
int64_t norm_scratch_bytes(const NetStep& net, const Schedule& schedule);

// Bytes of shared memory for the strips.
size_t shared_bytes(const NetStep& net, const Schedule& schedule);

// The best schedule by estimate; `chain` >= 0 fixes where the strips begin.
Schedule choose_schedule(const NetStep& net, const Target& target, int chain = -1);

}  // namespace ridgeline::cuda::generate
