#pragma once

// Who owns what, and where it lies, in the kernels that keep their weights on chip.
//
// Block c owns units [c * R, (c + 1) * R) of each hidden layer, R = 8 * own_tiles. For them it
// holds the rows of the layer's weights (forward), the columns of the next layer's weights
// (backward: a second copy, updated alike, so that no sum ever crosses blocks), and the last layer
// whole.

#include <cstdint>
#include <string>

#include "ridgeline/cuda/mlp_train/mlp_train.h"

namespace ridgeline::cuda::mlp {

// An offset in bytes: in shared memory if >= 0, else ~offset in the block's part of the workspace.
using Place = int64_t;

struct ResidentLayer {
  int in, out;
  int in_tiles, out_tiles;  // of 16 units
  int own_tiles;            // of 8 outputs, a block
  Place rows, columns;      // weight slots [own tile][unit tile][lane]; columns of the layer's
                            // inputs, from layer 1 on: [own tile of layer - 1][out tile][lane]
  int bias;                 // shared: float[8 * own_tiles]
  int own_y, own_dy;        // shared: half[8 * own_tiles][sample stride]; own_y of layer 0 twice
  int64_t y, dy;            // exchanged activations; y of layer 0 twice
  uint32_t y_bytes;         // that all blocks send for y (and dy), a cluster's filler included
};

struct ResidentPlan {
  int blocks;
  int hidden;
  ResidentLayer layer[kMlpMaxLayers];
  int classes, class_tiles;   // of 8
  int class_stride;           // of dlogits
  Place top;                  // slots [class tile][unit tile][lane]
  int top_bias;               // shared: float[8 * class_tiles]
  Place stash;                // dy of the last hidden layer, whole
  int stages, jobs;           // shared: tables, see stages.h
  int reduce, reduce_stride;  // shared: the warps' sums, of even and odd stages
  int logits, dlogits, dlogits_t, labels, sample_loss, sample_correct, barriers;  // shared
  int64_t x;       // exchanged inputs: a ring
  int x_bytes;     // one of them
  int64_t filler;  // cluster: where blocks that own nothing of a layer send
  size_t shared_bytes, exchange_bytes, private_bytes;
};

// `in_cluster`: the exchange buffers lie in shared memory, else in the workspace.
// Returns why not, or an empty text.
std::string plan_resident(const MlpTrainShape& shape, int blocks, bool in_cluster,
                          size_t shared_limit, ResidentPlan* plan);

// Common to all layouts: sizes in range.
std::string check_shape(const MlpTrainShape& shape);

constexpr int kInputRing = 4;         // grid: blocks are at most a step apart, gathering two ahead
constexpr int kInputRingCluster = 2;  // cluster: sent when all blocks have left the step before
constexpr int kLabelRing = 4;

inline int sample_tiles(int batch) { return batch <= 32 ? 2 : batch <= 64 ? 4 : 8; }
// Of own_y and own_dy, in halves: 8 more than the samples spread 8 rows over all banks.
constexpr int sample_stride(int sample_tiles) { return 16 * sample_tiles + 8; }

}  // namespace ridgeline::cuda::mlp
