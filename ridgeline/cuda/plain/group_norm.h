#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ridgeline/cuda/plain/mixed_operand.h"

// GroupNorm and its gradient from ops/norm.h: statistics in the accumulator dtype, in two passes,
// one block per run. Optional operands are null; without `mean`, the gradient takes it as 0.
namespace ridgeline::cuda {

struct GroupNormShape {
  int64_t runs;
  int groups, width, spatial;
  bool centred;

  int channels() const { return int(int64_t(groups) * width / spatial); }
};

template <typename T>
struct GroupNormArgs {
  GroupNormShape shape;
  const T* x;
  MixedIn<T> gamma, beta;
  T* y;
  Accumulated<T>*mean, *rstd;
  double epsilon;
};

template <typename T>
struct GroupNormGradArgs {
  GroupNormShape shape;
  const T *x, *dy;
  MixedIn<T> gamma;
  const Accumulated<T>*mean, *rstd;
  T* dx;
  MixedOut<T> dgamma, dbeta;
};

template <typename T>
cudaError_t launch_group_norm(const GroupNormArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_group_norm_grad(const GroupNormGradArgs<T>& args, cudaStream_t stream);

}  // namespace ridgeline::cuda
