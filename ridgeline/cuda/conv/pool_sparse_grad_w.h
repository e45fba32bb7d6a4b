#pragma once

#include "ridgeline/cuda/conv/implicit.h"

// The gradient of the filters of a convolution with few input channels that is followed by an
// activation and a 2 x 2 max pool. A pooling window passes its gradient to one pixel, so the
// gradient before the pool is sparse. Only the patches of x at those pixels are multiplied, which
// is a quarter of the products, by ordinary multiply-adds in the accumulator dtype. Deterministic.
namespace ridgeline::cuda {

// Why no kernel takes this shape with x of `width` bytes; "" if one does.
const char* refuse_pool_sparse_grad_w(const ImplicitShape& shape, size_t width,
                                      size_t shared_memory);
size_t pool_sparse_grad_w_workspace(const ImplicitShape& shape, size_t width, int sms);

// Writes dw[k, c, filter, filter] and db[k]; each may be in the accumulator dtype. dy.a must not be
// null. T: any float type.
template <typename T>
struct PoolSparseGradWArgs {
  ImplicitShape shape;
  const T* x;
  OutputGrad<T> dy;
  MixedOut<T> dw, db;
};
template <typename T>
cudaError_t launch_pool_sparse_grad_w(const PoolSparseGradWArgs<T>& args, void* workspace, int sms,
                                      cudaStream_t stream);  // writes partial sums to the workspace
template <typename T>
cudaError_t launch_pool_sparse_grad_w_sum(const PoolSparseGradWArgs<T>& args, void* workspace,
                                          int sms, cudaStream_t stream);  // adds those to dw and db

}  // namespace ridgeline::cuda
