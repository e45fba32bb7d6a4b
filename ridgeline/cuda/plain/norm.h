#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ridgeline/cuda/plain/mixed_operand.h"

// The normalisations of ops/norm.h: statistics in the accumulator dtype, in two passes, one block
// per row or channel. Optional operands are null.
namespace ridgeline::cuda {

template <typename T>
struct LayerNormArgs {
  const T* x;
  MixedIn<T> gamma, beta;
  T* y;
  Accumulated<T>*mean, *rstd;
  int64_t rows;
  int width;
  double epsilon;
};

// The arguments of both gradients.
template <typename T>
struct NormGradArgs {
  const T *x, *dy;
  MixedIn<T> gamma;
  const Accumulated<T>*mean, *rstd;
  T* dx;
  MixedOut<T> dgamma, dbeta;
};

template <typename T>
struct LayerNormGradArgs : NormGradArgs<T> {
  int64_t rows;
  int width;
};

// n images with c channels of this many pixels
template <typename T>
struct BatchNormArgs {
  const T* x;
  MixedIn<T> gamma, beta;
  T* y;
  Accumulated<T>*mean, *rstd, *running_mean, *running_var;
  int64_t* batches;
  int n, c, pixels;
  double epsilon, momentum;
};

template <typename T>
struct BatchNormGradArgs : NormGradArgs<T> {
  int n, c, pixels;
};

template <typename T>
struct BatchNormInferArgs {
  const T* x;
  MixedIn<T> gamma, beta;
  const Accumulated<T>*mean, *var;
  T* y;
  int n, c, pixels;
  double epsilon;
};

template <typename T>
cudaError_t launch_layer_norm(const LayerNormArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_layer_norm_grad(const LayerNormGradArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_batch_norm(const BatchNormArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_batch_norm_grad(const BatchNormGradArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_batch_norm_infer(const BatchNormInferArgs<T>& args, cudaStream_t stream);

}  // namespace ridgeline::cuda
