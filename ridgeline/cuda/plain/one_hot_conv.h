#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ridgeline/cuda/plain/mixed_operand.h"

namespace ridgeline::cuda {

struct OneHotGeometry {
  int n = 0, length = 0, symbols = 0, out = 0, kernel = 0;

  RIDGELINE_MIXED_HD int steps() const { return length - kernel + 1; }
  RIDGELINE_MIXED_HD int filter() const { return symbols * kernel; }
};

// y[i, o, t] = b[o] + sum over u of w[o, token[i, t + u], u]; a code of `symbols` or more adds
// nothing
template <typename T>
cudaError_t launch_one_hot_conv(const OneHotGeometry& g, const int32_t* token, const T* w,
                                MixedIn<T> b, T* y, cudaStream_t stream);

// dw[o, s, u] = sum of dy[i, o, t] where token[i, t + u] is s; db[o] = sum of dy[i, o, t], optional
size_t one_hot_grad_workspace(const OneHotGeometry& g, size_t accumulated);
template <typename T>
cudaError_t launch_one_hot_conv_grad_w(const OneHotGeometry& g, const int32_t* token, const T* dy,
                                       MixedOut<T> dw, MixedOut<T> db, void* workspace,
                                       cudaStream_t stream);
// The second launch: adds `count` shares [out, filter + 1], with db in the last column.
template <typename T>
cudaError_t launch_one_hot_grad_sum(const OneHotGeometry& g, const Accumulated<T>* shares,
                                    int count, MixedOut<T> dw, MixedOut<T> db, cudaStream_t stream);

}  // namespace ridgeline::cuda
