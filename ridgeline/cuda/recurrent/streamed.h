#pragma once

#include "ridgeline/cuda/recurrent/persistent.h"

// A whole pass over a sequence in one launch, of LSTMs and GRUs whose weights find no room on chip
// and of many items: what the persistent passes are, but the weights that do not stay in shared
// memory stream through it in every step, and a step takes all items at once, by wgmma. The blocks
// tell each other by a flag each that a step's state has been handed over. All blocks must be
// resident. bf16 and fp16.
namespace ridgeline::cuda::recurrent {

// The inner extent goes in blocks of 64 places: rows of 128 bytes, of the units' gates and of the
// items' states.
constexpr int kStreamWidth = 64, kStreamTileBytes = 64 * 128;  // the latter of a warpgroup's items
// A word a block: so many for each group of items.
constexpr int kStreamFlags = 256, kStreamGroups = 2;
constexpr int kStreamFlagBytes = kStreamGroups * kStreamFlags * 4;

struct StreamShape {
  int units = 0;           // hidden units of a block, a multiple of 4
  int tiles = 0;           // blocks that share out the hidden units
  int groups = 1;          // of items, each with its own blocks
  int rows = 0;            // items of a group: 32, 64 or 128
  int blocks_of_k = 0;     // of the inner extent; a stage each
  int stages = 0;          // on their way or in use
  uint64_t residents = 0;  // a bit for each block of the inner extent: its weights stay in shared
                           // memory
  RIDGELINE_CELL_HD bool is_resident(int block) const { return residents >> block & 1; }
  RIDGELINE_CELL_HD int resident() const {
    int count = 0;
    for (uint64_t left = residents; left != 0; left &= left - 1) ++count;
    return count;
  }
  // So many of them, evenly spread.
  void make_resident(int count) {
    residents = 0;
    for (int i = 0; i < blocks_of_k; ++i) {
      if ((i + 1) * count / blocks_of_k > i * count / blocks_of_k) residents |= uint64_t(1) << i;
    }
  }
};

// Of PersistentLayout it has what says how it is launched.
struct StreamedLayout : PersistentLayout {
  StreamShape stream;

  int items() const { return stream.rows * stream.groups; }  // of a launch
  // Flags, and the state of two steps.
  size_t exchange_bytes(int) const {
    return kStreamFlagBytes +
           size_t(stream.groups) * 2 * stream.blocks_of_k * size_t(stream.rows) * 128;
  }
};

// Of the current device. A batch that one launch does not take is taken in several.
StreamedLayout streamed_forward_layout(Cell cell, int planes, int hidden, int batch,
                                       int processors);

template <typename T>
cudaError_t launch_persistent_forward(const PersistentForward<T>& args,
                                      const StreamedLayout& layout, cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
