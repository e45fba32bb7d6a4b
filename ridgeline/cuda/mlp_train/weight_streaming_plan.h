#pragma once

// Which block owns what, and the memory layout, in the function that streams its weights from L2
// and HBM.
//
// Weights are in the workspace once, as tiles of 16 outputs x 16 inputs. Block c owns units [16 *
// own * c, 16 * own * (c + 1)) of each hidden layer. In the forward pass it reads the rows of its
// units; in the backward pass it reads, uses and updates the columns of its units in one pass. A
// step therefore moves each weight three times, and only the sum of the logits crosses blocks.

#include <cstdint>
#include <string>

#include "ridgeline/cuda/mlp_train/mlp_train.h"

namespace ridgeline::cuda::mlp {

struct WeightStreamingLayer {
  int in, out;
  int in_tiles, out_tiles;  // of 16 units
  int own;                  // output tiles that a block owns (in the last layer: all)
  int64_t w, master;  // workspace: [out tile][in tile][lane] 16 bytes; [..][2][lane] floats x 4
  int64_t y, dy;      // workspace: exchanged activations
  int bias, own_y;    // shared: float[16 * own]; [own tile][sample tile][lane] 16 bytes
};

struct WeightStreamingPlan {
  int blocks;
  int layers;
  WeightStreamingLayer layer[kMlpMaxLayers];
  int parts;  // own tiles per pass
  int classes;
  int class_stride;
  int64_t partial;    // workspace: [logit][block] float
  int64_t logit_sum;  // workspace: [logit] float, in the order of the accumulators
  int64_t x;          // workspace: two inputs, for this step and the next
  int x_bytes;
  int ring;    // shared; holds the warps' sums between passes
  int own_dy;  // shared, like own_y: for the current layer
  int transposed, logits, dlogits, dlogits_t, labels, sample_loss, sample_correct;  // shared
  size_t zeroed_bytes;  // at the start of the workspace; zeroed before each launch
  size_t shared_bytes, workspace_bytes;
};

std::string plan_weight_streaming(const MlpTrainShape& shape, int blocks, size_t shared_limit,
                                  WeightStreamingPlan* plan);

constexpr int kWeightStreamingMaxBatch = 64;

// Own tiles per pass: bounded by accumulators and by the ring.
constexpr int weight_streaming_parts(int own, int sample_tiles, bool masters) {
  return own > 2 && sample_tiles <= 2 && !masters ? 4 : 2;
}
// Own tiles that are summed over warps at a time, in 64 KB.
constexpr int weight_streaming_round(int sample_tiles) { return 4 / sample_tiles; }
constexpr int weight_streaming_stage_bytes(int parts, int sample_tiles, bool masters) {
  return (parts * (masters ? 2 : 1) + sample_tiles) * 16 * 512;
}
// Tiles in flight per warp: as many as fit in 192 KB.
constexpr int weight_streaming_depth(int parts, int sample_tiles, bool masters) {
  return 192 * 1024 / weight_streaming_stage_bytes(parts, sample_tiles, masters);
}

}  // namespace ridgeline::cuda::mlp
