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

// The head of a classifier leaves this for each sample.
struct SampleScore {
  double loss;
  int32_t correct;
};

// The last layer of a classifier on one timestep of the states, whose gradients the launch computes
// as well; there is none without classes.
template <typename T>
struct SplitKHead {
  int classes, time;
  const T* gradients;  // of the logits, [B, classes]
  MixedOut<T> dw, db;
  const SampleScore* scores;  // [B]
  const int32_t* tick;
  double* loss;      // [repeats], at tick: loss_scale * sum of the samples' losses
  int32_t* correct;  // [repeats], optional
  double loss_scale;
};

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
  SplitKHead<T> head;

  RIDGELINE_CELL_HD int rows() const { return cell_gates(cell) * sequence.hidden; }
  RIDGELINE_CELL_HD static int tiles_of(int extent) {
    return (extent + kSplitTile - 1) / kSplitTile;
  }
  RIDGELINE_CELL_HD int column_tiles() const { return tiles_of(in) + tiles_of(sequence.hidden); }
  RIDGELINE_CELL_HD int layer_tiles() const { return tiles_of(rows()) * column_tiles(); }
  // Those of the head are the last.
  int tiles() const { return layer_tiles() + (head.classes > 0 ? tiles_of(sequence.hidden) : 0); }
};

template <typename T>
cudaError_t launch_split_k_weights(const SplitKWeights<T>& args, cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
