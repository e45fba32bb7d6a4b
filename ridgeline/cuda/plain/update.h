#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ridgeline/cuda/plain/sgd.h"

namespace ridgeline::cuda {

constexpr int kMostTensors = 24;  // of one launch: its arguments stay well under 4 KiB

// One parameter of an update: m for momentum or Adam's first moment, v for the second.
template <typename T>
struct UpdateTensor {
  T* w = nullptr;
  const T* dw = nullptr;
  T *m = nullptr, *v = nullptr;
  int64_t count = 0;
};

template <typename T>
struct UpdateTensors {
  UpdateTensor<T> tensor[kMostTensors];
  int size = 0;
};

struct AdamSettings {
  const double* lr = nullptr;          // [repeats]
  const int64_t* step = nullptr;       // [1]
  const int32_t* tick = nullptr;       // [1]
  const double* grad_scale = nullptr;  // [1] or null
  double beta1 = 0, beta2 = 0, epsilon = 0, decay = 0;
  bool decoupled = false;
};

template <typename T>
cudaError_t launch_sgd(const SgdSettings& settings, const UpdateTensors<T>& tensors,
                       cudaStream_t stream);
template <typename T>
cudaError_t launch_adam(const AdamSettings& settings, const UpdateTensors<T>& tensors,
                        cudaStream_t stream);

// partial[0 .. kNormBlocks) = sums of squares over the dw of these tensors.
constexpr int kNormBlocks = 128;
template <typename T>
cudaError_t launch_square_sums(const UpdateTensors<T>& tensors, double* partial,
                               cudaStream_t stream);

// norm = sqrt(sum of partial); scale = min(1, max_norm / norm); clipped += scale < 1
struct NormArgs {
  const double* partial = nullptr;
  int count = 0;
  double max_norm = 1;
  double *norm = nullptr, *scale = nullptr;
  int64_t* clipped = nullptr;
};
cudaError_t launch_norm(const NormArgs& args, cudaStream_t stream);

// *tick += 1
cudaError_t launch_tick(int32_t* tick, cudaStream_t stream);

}  // namespace ridgeline::cuda
