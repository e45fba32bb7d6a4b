#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// Sums, products and concatenations from ops/join.h.
namespace ridgeline::cuda {

constexpr int kMostInputs = 64;  // kMostJoined

// y = scale * (xs[0] + xs[1] + ...), added in this order
template <typename T>
struct AddArgs {
  const T* xs[kMostInputs];
  int inputs;
  double scale;
  T* y;
  int64_t count;
};
template <typename T>
cudaError_t launch_add(const AddArgs<T>& args, cudaStream_t stream);

// y = a * b
template <typename T>
cudaError_t launch_multiply(const T* a, const T* b, T* y, int64_t count, cudaStream_t stream);

// Rows of y are the rows of the inputs, concatenated.
template <typename T>
struct ConcatArgs {
  const T* xs[kMostInputs];
  int64_t begin[kMostInputs + 1];  // columns of y where each input begins, and y's width
  int inputs;
  T* y;
  int64_t rows;
};
template <typename T>
cudaError_t launch_concat(const ConcatArgs<T>& args, cudaStream_t stream);

}  // namespace ridgeline::cuda
