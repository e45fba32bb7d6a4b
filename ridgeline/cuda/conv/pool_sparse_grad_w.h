#pragma once

#include "ridgeline/cuda/conv/implicit.h"

// The filters' gradient of a convolution of few input channels under an activation and a 2 x 2 max
// pool. A window of the pool passes its gradient to one pixel, so that the gradient before the pool
// is sparse: only the patches of x at those pixels are multiplied, a quarter of the products, by
// ordinary multiply-adds in the accumulator dtype. Deterministic.
namespace ridgeline::cuda {

// Why no kernel takes this shape with x of `width` bytes; "" when one does.
const char* refuse_pool_sparse_grad_w(const ImplicitShape& shape, size_t width,
                                      size_t shared_memory);
size_t pool_sparse_grad_w_workspace(const ImplicitShape& shape, size_t width, int sms);

// dw[k, c, filter, filter] and db[k], either of which may be in the accumulator dtype. dy.a is not
// null. T: any float.
template <typename T>
struct PoolSparseGradWArgs {
  ImplicitShape shape;
  const T* x;
  OutputGrad<T> dy;
  MixedOut<T> dw, db;
};
template <typename T>
cudaError_t launch_pool_sparse_grad_w(const PoolSparseGradWArgs<T>& args, void* workspace, int sms,
                                      cudaStream_t stream);  // shares, to the workspace
template <typename T>
cudaError_t launch_pool_sparse_grad_w_sum(const PoolSparseGradWArgs<T>& args, void* workspace,
                                          int sms, cudaStream_t stream);  // dw and db from those

}  // namespace ridgeline::cuda
