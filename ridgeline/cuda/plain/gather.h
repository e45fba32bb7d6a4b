#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ridgeline::cuda {

// y[i, j] = set[order[*first + *tick * n + i], j] * scale + shift and, if `labels` is given,
// label[i] = labels[the same sample]. To gather only labels, set, floats and y are null.
struct GatherArgs {
  const uint8_t* set = nullptr;
  const float* floats = nullptr;  // instead of `set`: y = floats[...], not scaled
  void* y = nullptr;
  const int32_t* labels = nullptr;  // [N, label_size]
  int32_t* label = nullptr;
  const int32_t* order = nullptr;
  const int64_t* first = nullptr;
  const int32_t* tick = nullptr;
  int64_t n = 0, sample_size = 0, label_size = 1;
  double scale = 1, shift = 0;
};

// T is the type of y.
template <typename T>
cudaError_t launch_gather(const GatherArgs& args, cudaStream_t stream);

// Gathers bytes only; each image is shifted and flipped as ops/augment.h defines.
struct AugmentArgs {
  GatherArgs gather;
  const int64_t* epoch = nullptr;
  uint64_t seed = 0;
  int h = 1, w = 1;
  int move = 0;
  bool flip = false;
};
template <typename T>
cudaError_t launch_gather_augment(const AugmentArgs& args, cudaStream_t stream);

}  // namespace ridgeline::cuda
