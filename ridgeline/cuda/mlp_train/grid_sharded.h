#pragma once

// Training steps over the whole GPU without barriers between blocks. A block owns 8 units of each
// hidden layer: it holds their rows of the layer's weights, their columns of the next layer's (a
// second copy, updated alike), and the last layer whole.
//
// The blocks exchange activations through L2, without flags: buffers are filled with a word that no
// pair of halves can be, and readers poll until none is left. An exchange is therefore one store
// and one load, without a fence, a counter or a second load. A step:
//   forward    y(l) of the own units, sent to all
//   top        logits, loss, dlogits, dy(H-1) of all units, the same in every block
//   backward   dy(l) of the own units, sent but for l = 0
// While slices travel, layers are updated whose gradient is there: the last two behind dy(1), layer
// 1 behind y(0) of the next step. Activations stay with the warp that read them, in registers or,
// y(0), in shared memory: warp w has the tiles of 16 units w, w + 16, ..
//
// Inputs are gathered for all steps of a launch beforehand.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "ridgeline/cuda/mlp_train/mlp_train.h"

namespace ridgeline::cuda::mlp {

constexpr int kGridShardedWarps = 16;
constexpr int kGridShardedSamples = 32;  // of a batch, at most
constexpr int kGridShardedClasses = 16;
constexpr int kGridShardedTightClasses = 10;  // where layers over 512 wide have masters
constexpr int kGridShardedInputTiles = 64;    // of 16 features
constexpr int kGridShardedSteps = 256;        // of a launch, at most: bounds the gathered inputs
// The buffers of an exchanged matrix, one a step. When a step sends, it also clears the buffer of
// two steps before: every block has sent dy of the step before, and no longer reads that buffer.
constexpr int kGridShardedRing = 4;
constexpr int kGridShardedTileBytes = 1024;  // 16 units x 32 samples

// Workspace: exchanged matrices, rates, labels, inputs.
struct GridShardedPlaces {
  int input_tiles, unit_tiles;  // of 16; of the widest layer
  size_t matrix, rates, labels, x, bytes;

  explicit GridShardedPlaces(const MlpTrainShape& shape);
  size_t exchanged() const { return rates; }
};

std::string refuse_grid_sharded(const MlpTrainShape& shape);

}  // namespace ridgeline::cuda::mlp
