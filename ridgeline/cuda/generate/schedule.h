#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ridgeline/cuda/generate/net.h"

namespace ridgeline::cuda::generate {

// Whether products of the grid go by way of shared memory. `always` is for tests: all layers are
// phases of the grid then.
enum class Tiles : uint8_t { never, where_faster, always };

// What the kernel is written for.
struct Target {
  int architecture = 90;  // 10 * major + minor
  int blocks = 132;       // that are resident at a time: SMs
  size_t shared_bytes = 227 * 1024;
  Tiles tiles = Tiles::where_faster;
  bool parts = true;  // of gradients over long batches
};

// How a product is shared out, see product.cuh.
struct ProductPlan {
  int rows = 0, columns = 0, depth = 0;  // of the results, and what is summed over
  int mt = 1, nt = 1, split = 1, ring = 4;
  int down = 1;        // groups below one another, of those of a block (grid products)
  bool tiled = false;  // by warpgroups from shared memory (grid products); `down` counts those
  int parts = 1;       // of the depth, which other blocks sum; they are added up behind a barrier
  int tiles = 0;       // for blocks to take, parts of them counted singly
  double cycles = 0;   // by estimate
};

// A training step as phases with barriers of the grid between them:
//   forward of layers 0 .. chain - 1, a phase each, tiles over all blocks; a further phase of each
//   that is normalised, except for the last of them, which is normalised by the strips
//   strips of rows, a block each: layers chain .. last, the loss, the gradients of those layers'
//   inputs gradients of the inputs of layers chain - 1 .. 1, a phase each gradients of all weights,
//   and updates
// `chain` may be the number of layers: then the strips hold the loss alone.
struct Schedule {
  int blocks = 0;
  int chain = 0;
  int strip_units = 1;  // of 16 rows
  int strips = 0;
  std::vector<ProductPlan> forward, backward, weights;  // by layer; backward[0] is none
  double cycles = 0;
  std::string refusal;

  // Whether gradients of weights are stored in parts, and used behind one more barrier.
  bool late_updates() const {
    for (const ProductPlan& plan : weights) {
      if (plan.parts > 1) return true;
    }
    return false;
  }
  bool in_strip(size_t layer) const { return int(layer) >= chain; }
};

// Numbers a chunk of 64 bytes, and bytes a number, of operands.
int chunk_of(Math math);
int number_bytes(Math math);
int value_bytes(Math math);  // of sums and updates
inline int64_t up(int64_t extent, int64_t to) { return (extent + to - 1) / to * to; }

// Of a layer that is normalised: whether over the batch. That takes a barrier of the grid.
inline bool over_batch(const NetLayer& layer) { return layer.norm.batch != nullptr; }

// A product of a strip of rows by one block; `shared`: its rows lie in shared memory.
ProductPlan strip_product(int strip_units, int64_t columns, int64_t depth, Math math, bool shared);

// Bytes of shared memory that a product takes for its sums or operands.
int64_t scratch_bytes(const ProductPlan& plan, Math math);

// Whether f' is kept beside y of a layer, because what products read does not tell it.
bool keeps_slopes(const NetLayer& layer, Math math);

// Bytes of shared memory that normalisations put statistics in.
int64_t norm_scratch_bytes(const NetStep& net, const Schedule& schedule);

// Bytes of shared memory that the strips take.
size_t shared_bytes(const NetStep& net, const Schedule& schedule);

// The best by estimate; `chain` >= 0 fixes where strips begin.
Schedule choose_schedule(const NetStep& net, const Target& target, int chain = -1);

}  // namespace ridgeline::cuda::generate
