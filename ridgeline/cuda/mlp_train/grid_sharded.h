#pragma once

// Training steps over the whole GPU without barriers between blocks. A block owns 8 units of each
// hidden layer: it holds their rows of the layer's weights, their columns of the next layer's
// weights (a second copy, updated alike), and the whole last layer.
//
// The blocks exchange activations through L2, without flags: buffers are filled with a word that no
// pair of halves can be, and readers poll until none is left. An exchange is therefore one store
// and one load, without a fence, a counter or a second load. A step is:
//   forward    y(l) of the own units, sent to all
//   top        logits, loss, dlogits, dy(H-1) of all units, the same in every block
//   backward   dy(l) of the own units, sent unless l = 0
// While values are being sent, the layers whose gradient is ready are updated: the last two after
// dy(1), and layer 1 after y(0) of the next step. Activations stay with the warp that read them, in
// registers or, for y(0), in shared memory: warp w has the tiles of 16 units w, w + 16, and so on.
//
// Inputs are gathered for all steps of a launch beforehand.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "ridgeline/cuda/mlp_train/mlp_train.h"

namespace ridgeline::cuda::mlp {

constexpr int kGridShardedWarps = 16;
constexpr int kGridShardedSamples = 32;  // per batch, at most
constexpr int kGridShardedClasses = 16;
// The limit if layers wider than 512 have master weights.
constexpr int kGridShardedTightClasses = 10;
constexpr int kGridShardedInputTiles = 64;  // tiles of 16 features
constexpr int kGridShardedSteps = 256;      // per launch, at most: bounds the gathered inputs
// The buffers of an exchanged matrix, one per step. When a step sends, it also clears the buffer of
// two steps before: every block has sent dy of the previous step, and no longer reads that buffer.
constexpr int kGridShardedRing = 4;
constexpr int kGridShardedTileBytes = 1024;  // 16 units x 32 samples

// The workspace: exchanged matrices, rates, labels, inputs.
struct GridShardedPlaces {
  int input_tiles, unit_tiles;  // tiles of 16; unit_tiles: of the widest layer
  size_t matrix, rates, labels, x, bytes;

  explicit GridShardedPlaces(const MlpTrainShape& shape);
  size_t exchanged() const { return rates; }
};

std::string refuse_grid_sharded(const MlpTrainShape& shape);

}  // namespace ridgeline::cuda::mlp
