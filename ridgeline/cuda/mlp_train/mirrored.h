#pragma once

// Training steps in one cluster of 16 blocks with a single exchange a step. Blocks share out the
// first layer alone (8 of its units each, weights in registers); every block holds and trains the
// whole of the layers above it, since a 128 x 128 product costs less than sending its operands.
//
// A step, and what it waits for:
//   first      y(0) of the block's own units; sums of the warps; sent to all blocks
//   upward     y(1).. y(H-1), logits, dlogits: wgmma products, the same in every block
//   downward   dz(H-1).. dz(1), then dz(0) of the block's own units
//   first      update of the block's own rows, from registers to registers
// Two warpgroups are the chain above. The other two follow it and update the layers above the
// first, in the step after, while its y(0) travels: layer l is done before the chain comes to it.
// Layers are updated in place, since nobody reads them then.
//
// Inputs are gathered for all steps of a launch beforehand, in the order of the operands.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "ridgeline/cuda/mlp_train/mlp_train.h"

namespace ridgeline::cuda::mlp {

constexpr int kMirrorBlocks = 16;
constexpr int kMirrorUnits = 128;   // of a hidden layer, at most
constexpr int kMirrorSamples = 32;  // of a batch, at most
constexpr int kMirrorClasses = 16;
constexpr int kMirrorWarps = 16;
constexpr int kMirrorChainWarps = 8;
constexpr int kMirrorSlice = 64;  // inputs of a warp
constexpr int kMirrorFeatures = kMirrorWarps * kMirrorSlice;
// fp32 weights of the layers above the first, at most: of a block, in the workspace.
constexpr int kMirrorMasters = (2 * kMirrorUnits + kMirrorClasses) * kMirrorUnits;
constexpr int kMirrorSteps = 256;  // of a launch, at most: bounds the gathered inputs

// Workspace, for kMirrorSteps steps: rates, labels, inputs (straight and transposed), masters.
struct MirroredInputs {
  int slices;  // of 64 inputs
  size_t labels, x, masters, bytes;

  MirroredInputs(int features, bool with_masters)
      : slices((features + kMirrorSlice - 1) / kMirrorSlice),
        labels(kMirrorSteps * sizeof(float2)),
        x(labels + kMirrorSteps * kMirrorSamples),
        masters(x + size_t(kMirrorSteps) * slices * kMirrorSlice * kMirrorSamples * 4),
        bytes(masters + (with_masters ? size_t(kMirrorBlocks) * kMirrorMasters * 4 : 0)) {}
};

std::string refuse_mirrored(const MlpTrainShape& shape);

}  // namespace ridgeline::cuda::mlp
