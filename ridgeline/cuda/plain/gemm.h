#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/plain/sgd.h"

// Matrix products in shared-memory tiles on CUDA cores: any architecture, any shape, multiply-adds
// in the accumulator dtype (fp64 for fp64, otherwise fp32). Deterministic: if k is split over
// blocks, partial sums go to memory and a second launch adds them in order.
namespace ridgeline::cuda {

// How many blocks share a sum of a product whose result is divided into tiles of 64 x 64.
struct GemmTiling {
  int splits = 1;
  size_t workspace = 0;  // bytes for partial sums
};

// For a product [m, k] . [k, n] with an accumulator of `width` bytes on a GPU with this many SMs.
GemmTiling gemm_tiling(int64_t m, int64_t n, int64_t k, size_t width, int sms);

// y[n, out] = f(x[n, in] . w[out, in]^T + b[out]);  b may be null, or be given in fp32 as acc_b
template <typename T>
struct LinearArgs {
  const T *x, *w, *b;
  const float* acc_b;
  T* y;
  int n, in, out;
  ActivationFn activation;
};

// dx[n, in] = dy[n, out] . w[out, in]
template <typename T>
struct LinearGradXArgs {
  const T *dy, *w;
  T* dx;
  int n, in, out;
};

// dw[out, in] = dy[n, out]^T . x[n, in];  db[out] = sum over n of dy, if db or b is given. Half
// types may have their gradients in fp32, as acc_dw and acc_db. With w (and b) the gradients are
// not stored but update w by SGD directly; momenta are fp32 for half types.
template <typename T>
struct LinearGradWArgs {
  using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const T *x, *dy;
  T *dw, *db;
  Accumulator *acc_dw, *acc_db;
  T *w, *b;
  Accumulator *w_momentum, *b_momentum;
  SgdSettings sgd;
  int n, in, out;

  bool has_bias() const { return db != nullptr || acc_db != nullptr || b != nullptr; }
};

template <typename T>
cudaError_t launch_linear(const LinearArgs<T>& args, const GemmTiling& tiling, void* workspace,
                          cudaStream_t stream);
template <typename T>
cudaError_t launch_linear_grad_x(const LinearGradXArgs<T>& args, const GemmTiling& tiling,
                                 void* workspace, cudaStream_t stream);
template <typename T>
cudaError_t launch_linear_grad_w(const LinearGradWArgs<T>& args, const GemmTiling& tiling,
                                 void* workspace, cudaStream_t stream);

}  // namespace ridgeline::cuda
