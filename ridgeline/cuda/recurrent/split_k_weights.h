#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/mixed_operand.h"
#include "ridgeline/cuda/recurrent/cell.h"

// The gradients of a small layer's weights and biases in one launch: dw = gate gradients^T . [x, h
// before the timestep] over all timesteps of all samples. A cluster of blocks has a tile of dw; its
// blocks divide the timesteps (split-K) and add up their sums in a fixed order through distributed
// shared memory.
namespace ridgeline::cuda::recurrent {

constexpr int kSplitTile = 64, kMostSplits = 8;

template <typename T>
struct SplitKWeights {
  Cell cell;
  Sequence sequence;
  int in;
  const T *x, *y, *h0;  // h0 [B, H] of the direction; may be null
  const T* gradients;   // of the direction
  int64_t pitch;        // of the gate gradients of a timestep
  MixedOut<T> dw_ih, dw_hh, db_ih, db_hh;
  int splits;  // blocks per cluster

  RIDGELINE_CELL_HD int rows() const { return cell_gates(cell) * sequence.hidden; }
  RIDGELINE_CELL_HD static int tiles_of(int extent) {
    return (extent + kSplitTile - 1) / kSplitTile;
  }
  RIDGELINE_CELL_HD int column_tiles() const { return tiles_of(in) + tiles_of(sequence.hidden); }
  int tiles() const { return tiles_of(rows()) * column_tiles(); }
};

template <typename T>
cudaError_t launch_split_k_weights(const SplitKWeights<T>& args, cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
