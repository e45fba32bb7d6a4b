#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/plain/mixed_operand.h"

// The end of a classifier, forward and backward: a last linear layer with few outputs, softmax,
// loss, and the gradients of the layer's weights and of its input (and of the activation before
// that). Intermediate values are rounded to T as if they were stored. Two launches, deterministic.
namespace ridgeline::cuda {

constexpr int kMostHeadOutputs = 16;
constexpr int kHeadRows = 8;  // per block
// The limit for the weights and a block's rows, in the accumulator dtype.
constexpr int kMostHeadBytes = 46 << 10;

template <typename T>
struct HeadGradsArgs {
  const T* x;    // [n, in]
  const T* w;    // [out, in]
  MixedIn<T> b;  // [out], optional
  const int32_t *label, *tick;
  double* loss;      // [repeats], at tick: loss_scale * sum of the rows' losses
  int32_t* correct;  // [repeats], optional
  T* dx;             // [n, in]: times the slope of `activation` at x, if there is one
  MixedOut<T> dw, db;
  ActivationFn activation;
  int n, in, out;
  double loss_scale, grad_scale;
  const double* grad_factor;  // [1], multiplies the gradient as well; or null
};

size_t head_grads_workspace(int n, int in, int out, size_t width);  // bytes; width: that of a sum
template <typename T>
cudaError_t launch_head_grads(const HeadGradsArgs<T>& args, void* workspace, cudaStream_t stream);
// Computes dw, db, loss and correct from what the first launch leaves in the workspace.
template <typename T>
cudaError_t launch_head_grads_sum(const HeadGradsArgs<T>& args, void* workspace,
                                  cudaStream_t stream);

}  // namespace ridgeline::cuda
