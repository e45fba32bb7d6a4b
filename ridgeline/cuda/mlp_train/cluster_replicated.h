#pragma once

// Training steps in one cluster of 16 blocks with a single exchange per step. Only the first layer
// is divided among the blocks (8 of its units each, weights in registers). Every block holds and
// trains a replica of the layers above it, because a 128 x 128 product costs less than sending its
// operands.
//
// The critical path of a step:
//   first      y(0) of the block's own units; sums of the warps; sent to all blocks
//   upward     y(1).. y(H-1), logits, dlogits: wgmma products, the same in every block
//   downward   dz(H-1).. dz(1), then dz(0) of the block's own units
//   first      update of the block's own rows, from registers to registers
// Two warpgroups run this chain. The other two follow it and update the layers above the first
// during the next step, while its y(0) is being sent: layer l is updated before the chain reaches
// it. Layers are updated in place, because no warp reads them then.
//
// Inputs are gathered for all steps of a launch beforehand, in the order of the operands.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "ridgeline/cuda/mlp_train/mlp_train.h"

namespace ridgeline::cuda::mlp {

constexpr int kReplicatedBlocks = 16;
constexpr int kReplicatedUnits = 128;   // per hidden layer, at most
constexpr int kReplicatedSamples = 32;  // per batch, at most
constexpr int kReplicatedClasses = 16;
constexpr int kReplicatedWarps = 16;
constexpr int kReplicatedChainWarps = 8;
constexpr int kReplicatedSlice = 64;  // inputs per warp
constexpr int kReplicatedFeatures = kReplicatedWarps * kReplicatedSlice;
// The most fp32 weights of the layers above the first: one copy per block, in the workspace.
constexpr int kReplicatedMasters = (2 * kReplicatedUnits + kReplicatedClasses) * kReplicatedUnits;
constexpr int kReplicatedSteps = 256;  // per launch, at most: bounds the gathered inputs

// The workspace for kReplicatedSteps steps: rates, labels, inputs (plain and transposed), master
// weights.
struct ClusterReplicatedInputs {
  int slices;  // slices of 64 inputs
  size_t labels, x, masters, bytes;

  ClusterReplicatedInputs(int features, bool with_masters)
      : slices((features + kReplicatedSlice - 1) / kReplicatedSlice),
        labels(kReplicatedSteps * sizeof(float2)),
        x(labels + kReplicatedSteps * kReplicatedSamples),
        masters(x + size_t(kReplicatedSteps) * slices * kReplicatedSlice * kReplicatedSamples * 4),
        bytes(masters + (with_masters ? size_t(kReplicatedBlocks) * kReplicatedMasters * 4 : 0)) {}
};

std::string refuse_cluster_replicated(const MlpTrainShape& shape);

}  // namespace ridgeline::cuda::mlp
