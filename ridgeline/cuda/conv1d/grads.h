#pragma once

#include <functional>

#include "ridgeline/cuda/conv1d/conv1d.h"

// Gradients of a convolution along a row (stride 1, no padding), as products on tensor cores. In
// rows of channels, the windows of all positions form one matrix whose rows overlap: row r begins
// `channels` values after row r - 1 and is taps * channels long. Each gradient is therefore one
// product, and nothing is unrolled in memory.
namespace ridgeline::cuda {

struct Conv1dGradShape {
  int n = 0, channels = 0, length = 0, out = 0, taps = 0;

  int steps() const { return length - taps + 1; }
};

std::string refuse_conv1d_grads(const Conv1dGradShape& shape);

// dx[i, c, s] = sum over (o, u) of dy[i, o, s - u] w[o, c, u]; T is bf16 or fp16.
size_t conv1d_grad_x_workspace(const Conv1dGradShape& shape);
template <typename T>
std::function<cudaError_t(cudaStream_t)> prepare_conv1d_grad_x(const Conv1dGradShape& shape,
                                                               const T* dy, const T* w, T* dx,
                                                               void* workspace);

// dw[o, c, u] = sum over (i, t) of dy[i, o, t] x[i, c, t + u]
size_t conv1d_grad_w_workspace(const Conv1dGradShape& shape);
template <typename T>
std::function<cudaError_t(cudaStream_t)> prepare_conv1d_grad_w(const Conv1dGradShape& shape,
                                                               const T* x, const T* dy,
                                                               MixedOut<T> dw, void* workspace);

}  // namespace ridgeline::cuda
