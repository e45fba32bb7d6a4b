#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ridgeline/cuda/plain/sgd.h"

namespace ridgeline::cuda {

constexpr int kMostTensors = 24;  // per launch: its arguments stay under 4 KiB

// One parameter of an update: m is the momentum or Adam's first moment, v the second moment, in
// fp32 if T is a half type. An fp32 weight may have a copy in a half type.
template <typename T>
struct UpdateTensor {
  using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;
  T* w = nullptr;
  const T* dw = nullptr;
  Accumulator *m = nullptr, *v = nullptr;
  void* copy = nullptr;
  bool copy_is_bf16 = false;  // else fp16
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
                        int most_blocks, cudaStream_t stream);

// partial[0 .. kNormBlocks) = sums of squares over the dw of these tensors.
constexpr int kNormBlocks = 128;
template <typename T>
cudaError_t launch_square_sums(const UpdateTensors<T>& tensors, double* partial,
                               cudaStream_t stream);

// How GradScale (ops/grad_scale.h) uses the sum of partial.
struct NormArgs {
  const double* partial = nullptr;
  int count = 0;
  double max_norm = 1;
  double *norm = nullptr, *scale = nullptr;
  int64_t* clipped = nullptr;
  double* loss_scale = nullptr;  // null: no loss scale, and none of the following
  int64_t *good = nullptr, *skipped = nullptr;
  int64_t growth = 0;
};
cudaError_t launch_norm(const NormArgs& args, cudaStream_t stream);

// *tick += 1
cudaError_t launch_tick(int32_t* tick, cudaStream_t stream);

}  // namespace ridgeline::cuda
