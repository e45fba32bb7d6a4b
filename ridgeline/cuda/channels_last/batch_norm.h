#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ridgeline/cuda/plain/mixed_operand.h"

// Batch normalisation of rows of channels [rows, c] in halves, c a multiple of eight, with what
// stands around it in a net. The sums are in fp32: each thread's are added up in a block, and those
// of the blocks by a second launch, in a fixed order.
namespace ridgeline::cuda {

// What follows the normalisation in the same pass.
enum class NormTail { none, relu, relu_pool, relu_add, add_relu };

template <typename T>
struct RowsNormArgs {
  const T* x = nullptr;  // [rows, c]
  MixedIn<T> gamma, beta;
  T* y = nullptr;           // the normalised numbers, where there is no tail
  T* active = nullptr;      // after relu; null: not wanted
  T* tail = nullptr;        // relu_pool: pooled; relu_add: active + skip; else unused
  const T* skip = nullptr;  // relu_add, add_relu: the other addend
  float *mean = nullptr, *rstd = nullptr, *running_mean = nullptr, *running_var = nullptr;
  int64_t* batches = nullptr;
  int64_t rows = 0;
  int c = 0, h = 0, w = 0;  // h and w: of the images, for a pool of 2 x 2
  double epsilon = 0, momentum = 0;
  float* partial = nullptr;  // norm_workspace() bytes
};

// What the gradient passes on its way to the normalisation.
enum class NormHead { none, relu, pool_relu };

template <typename T>
struct RowsNormGradArgs {
  const T* x = nullptr;
  const T* dy = nullptr;      // [rows, c]; of the pool's output with pool_relu
  const T* active = nullptr;  // relu's output, with a head
  T* masked = nullptr;        // the gradient after relu, where it is wanted besides
  MixedIn<T> gamma;
  const float *mean = nullptr, *rstd = nullptr;
  T* dx = nullptr;  // null: not wanted
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
// db[c] = the sum of each channel over the rows; `partial` as above.
template <typename T>
cudaError_t launch_row_sums(const T* dy, MixedOut<T> db, int64_t rows, int c, float* partial,
                            int sms, cudaStream_t stream);

}  // namespace ridgeline::cuda
