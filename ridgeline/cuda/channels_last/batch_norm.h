#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ridgeline/cuda/plain/mixed_operand.h"

// Batch normalisation of rows of channels [rows, c] in half precision, with c a multiple of eight,
// fused with the ops around it. Sums are in fp32: a block adds its threads' sums, and a second
// launch adds the blocks' sums in a fixed order.
namespace ridgeline::cuda {

// The ops that follow the normalisation in the same pass.
enum class NormTail { none, relu, relu_pool, relu_add, add_relu };

template <typename T>
struct RowsNormArgs {
  const T* x = nullptr;  // [rows, c]
  MixedIn<T> gamma, beta;
  T* y = nullptr;           // the normalised values, if there is no tail
  T* active = nullptr;      // the output of relu; null if not wanted
  T* tail = nullptr;        // relu_pool: pooled; relu_add: active + skip; otherwise unused
  const T* skip = nullptr;  // relu_add and add_relu: the other addend
  float *mean = nullptr, *rstd = nullptr, *running_mean = nullptr, *running_var = nullptr;
  int64_t* batches = nullptr;
  int64_t rows = 0;
  int c = 0, h = 0, w = 0;  // h and w: the image extents, for a 2 x 2 pool
  double epsilon = 0, momentum = 0;
  float* partial = nullptr;  // norm_workspace() bytes
};

// The ops whose gradients are computed on the way to the normalisation's gradient.
enum class NormHead { none, relu, pool_relu };

template <typename T>
struct RowsNormGradArgs {
  const T* x = nullptr;
  const T* dy = nullptr;      // [rows, c]; the gradient of the pool's output with pool_relu
  const T* active = nullptr;  // the output of relu, if there is a head
  T* masked = nullptr;        // the gradient after relu's, if it is wanted as well
  MixedIn<T> gamma;
  const float *mean = nullptr, *rstd = nullptr;
  T* dx = nullptr;  // null if not wanted
  MixedOut<T> dgamma, dbeta;
  int64_t rows = 0;
  int c = 0, h = 0, w = 0;
  float* partial = nullptr;
};

size_t norm_workspace(int64_t rows, int c, int sms);

template <typename T>
cudaError_t launch_rows_norm(const RowsNormArgs<T>& args, NormTail tail, int sms,
                             cudaStream_t stream);
template <typename T>
cudaError_t launch_rows_norm_grad(const RowsNormGradArgs<T>& args, NormHead head, int sms,
                                  cudaStream_t stream);
// db[c] = sum over the rows of each channel; `partial` as above.
template <typename T>
cudaError_t launch_row_sums(const T* dy, MixedOut<T> db, int64_t rows, int c, float* partial,
                            int sms, cudaStream_t stream);

}  // namespace ridgeline::cuda
