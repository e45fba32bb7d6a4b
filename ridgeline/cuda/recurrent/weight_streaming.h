#pragma once

#include "ridgeline/cuda/recurrent/persistent.h"

// A whole pass over a sequence in one launch, for LSTMs and GRUs whose weights do not fit on chip,
// and for many samples. It differs from the persistent passes (persistent.h): weights that do not
// stay in shared memory stream through it in every timestep, and a timestep takes all samples at
// once, by wgmma. Each block sets a flag when it has stored a timestep's state. All blocks must be
// resident. Takes bf16 and fp16.
namespace ridgeline::cuda::recurrent {

// The inner extent is divided into blocks of 64 places: rows of 128 bytes, for the units' gates and
// for the samples' states.
constexpr int kStreamWidth = 64,
              kStreamTileBytes = 64 * 128;  // of a warpgroup's samples
// One word per block; this many for each group of samples.
constexpr int kStreamFlags = 256, kStreamGroups = 2;
constexpr int kStreamFlagBytes = kStreamGroups * kStreamFlags * 4;

struct StreamShape {
  int units = 0;           // hidden units per block, a multiple of 4
  int tiles = 0;           // blocks that split the hidden units
  int groups = 1;          // groups of samples, each with its own blocks
  int samples = 0;         // per group: 32, 64 or 128
  int blocks_of_k = 0;     // blocks of the inner extent; one stage each
  int stages = 0;          // in flight or in use
  uint64_t residents = 0;  // bit i: the weights of block i of the inner extent stay on chip
  RIDGELINE_CELL_HD bool is_resident(int block) const { return residents >> block & 1; }
  RIDGELINE_CELL_HD int resident() const {
    int count = 0;
    for (uint64_t left = residents; left != 0; left &= left - 1) ++count;
    return count;
  }
  // Makes `count` blocks of the inner extent resident, evenly spaced.
  void make_resident(int count) {
    residents = 0;
    for (int i = 0; i < blocks_of_k; ++i) {
      if ((i + 1) * count / blocks_of_k > i * count / blocks_of_k) residents |= uint64_t(1) << i;
    }
  }
};

// It uses the members of PersistentLayout that describe the launch.
struct WeightStreamingLayout : PersistentLayout {
  StreamShape stream;

  int samples() const { return stream.samples * stream.groups; }  // per launch
  // The flags, and the states of two timesteps.
  size_t exchange_bytes(int) const {
    return kStreamFlagBytes +
           size_t(stream.groups) * 2 * stream.blocks_of_k * size_t(stream.samples) * 128;
  }
};

// The layout for the current device. A batch that is too large for one launch is run in several.
WeightStreamingLayout weight_streaming_forward_layout(Cell cell, int planes, int hidden, int batch,
                                                      int sms);

template <typename T>
cudaError_t launch_persistent_forward(const PersistentForward<T>& args,
                                      const WeightStreamingLayout& layout, cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
