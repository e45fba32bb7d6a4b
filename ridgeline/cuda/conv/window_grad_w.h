#pragma once

#include "ridgeline/cuda/conv/implicit.h"

// The filters' gradient of a convolution of few input channels under an activation and a 2 x 2 max
// pool. A window hands its gradient to one pixel, so only that pixel's patch of x is multiplied: a
// quarter of the products, as ordinary multiply-adds in the accumulating type. Deterministic.
namespace ridgeline::cuda {

// Why no kernel takes this shape with x of `width` bytes; "" when one does.
const char* refuse_window_grad_w(const ImplicitShape& shape, size_t width, size_t shared_memory);
size_t window_grad_w_workspace(const ImplicitShape& shape, size_t width, int processors);

// dw[k, c, filter, filter] and db[k], either of which may be wide. dy.a is not null. T: any float.
template <typename T>
struct WindowGradWArgs {
  ImplicitShape shape;
  const T* x;
  OutputGrad<T> dy;
  LooseOut<T> dw, db;
};
template <typename T>
cudaError_t launch_window_grad_w(const WindowGradWArgs<T>& args, void* workspace, int processors,
                                 cudaStream_t stream);  // shares, to the workspace
template <typename T>
cudaError_t launch_window_grad_w_sum(const WindowGradWArgs<T>& args, void* workspace,
                                     int processors, cudaStream_t stream);  // dw and db from those

}  // namespace ridgeline::cuda
