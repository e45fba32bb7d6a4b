#pragma once

// Gathers the inputs of a batch: bytes of the resident set to slots of activations (fragments.cuh),
// and labels.

#include <cstdint>

#include "ridgeline/cuda/device/mma.cuh"
#include "ridgeline/cuda/mlp_train/batch_tiles.h"
#include "ridgeline/cuda/mlp_train/mlp_train.h"

namespace ridgeline::cuda::mlp {

// Four inputs from `unit` on, for samples `sample` and `sample` + 8 of the batch that starts at
// `base`, as a lane's slot.
template <typename T>
__device__ inline uint4 gather_slot(const MlpTrainArgs& args, int64_t base, int unit, int sample) {
  const int features = args.shape.sizes[0];
  const bool words = features % 4 == 0 && (reinterpret_cast<uintptr_t>(args.images) & 3) == 0;
  uint32_t pixels[2] = {0, 0};
  bool live[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    live[i] = sample + 8 * i < args.shape.batch;
    if (!live[i]) continue;
    const uint8_t* row = args.images + int64_t{args.order[base + sample + 8 * i]} * features;
    if (words) {
      if (unit < features) pixels[i] = __ldg(reinterpret_cast<const uint32_t*>(row + unit));
    } else {
      for (int k = 0; k < 4; ++k) {
        if (unit + k < features) pixels[i] |= uint32_t{row[unit + k]} << (8 * k);
      }
    }
  }
  uint32_t out[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    float v[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int at = (r >> 1) * 2 + k;
      const float byte = float((pixels[r & 1] >> (8 * at)) & 0xff);
      v[k] = live[r & 1] && unit + at < features ? fmaf(byte, args.scale, args.shift) : 0.0f;
    }
    out[r] = Pair<T>::pack(v[0], v[1]);
  }
  return {out[0], out[1], out[2], out[3]};
}

// One lane's slot of the input at step t: chunk = (unit tile * sample tiles + sample tile) * 32 +
// lane.
template <typename T, int kSampleTiles>
__device__ inline uint4 gather_chunk(const MlpTrainArgs& args, int64_t base, int chunk) {
  const int lane = chunk & 31, tile = chunk >> 5;
  return gather_slot<T>(args, base, tile / kSampleTiles * 16 + (lane & 3) * 4,
                        tile % kSampleTiles * 16 + (lane >> 2));
}

// `labels` is a ring of kLabelRing batches of 16 * kSampleTiles labels.
template <int kSampleTiles>
__device__ inline void gather_labels(const MlpTrainArgs& args, int64_t base, int t, int thread,
                                     int threads, int* labels) {
  for (int i = thread; i < args.shape.batch; i += threads) {
    labels[(t & (kLabelRing - 1)) * 16 * kSampleTiles + i] = args.labels[args.order[base + i]];
  }
}

}  // namespace ridgeline::cuda::mlp
