#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/mixed_operand.h"

namespace ridgeline::cuda::recurrent {

// d[m, n] = a[m, k] . b[k, n], or d += with `adds`. Operands have arbitrary strides along rows and
// columns; d is contiguous along n. Sums are in the accumulator dtype, in the order of k.
template <typename T>
struct MatrixArgs {
  const T *a, *b;
  MixedOut<T> d;
  int m, n, k;
  int64_t a_row, a_column, b_row, b_column, d_row;
  bool adds;  // d must then be in the accumulator dtype
};

template <typename T>
cudaError_t launch_matrix(const MatrixArgs<T>& args, cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
