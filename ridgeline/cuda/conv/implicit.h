#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "ridgeline/cuda/conv/pooled.h"
#include "ridgeline/cuda/plain/loose.h"

// Convolutions as implicit matrix products on tensor cores: nothing is unrolled in memory. T:
// __nv_bfloat16, __half, or float, whose factors are rounded to tf32. Stride 1, no dilation, one
// group, square filters. Deterministic.
namespace ridgeline::cuda {

struct ImplicitShape {
  int n = 0, c = 0, h = 0, w = 0, k = 0, filter = 0, pad = 0;

  constexpr int out_h() const { return h + 2 * pad - filter + 1; }
  constexpr int out_w() const { return w + 2 * pad - filter + 1; }
  // The gradient of x is the convolution of the gradient of y with the filters turned around.
  constexpr ImplicitShape turned() const {
    return {n, k, out_h(), out_w(), c, filter, filter - 1 - pad};
  }
};

// Why no kernel takes this shape with factors of `width` bytes and so much shared memory a block;
// "" when one does.
const char* refuse_implicit(const ImplicitShape& shape, size_t width, size_t shared_memory);
size_t implicit_workspace(const ImplicitShape& shape, size_t width);  // bytes

// y[n, k, out_h, out_w] = x * w + b. With `turned`, w is [c, k, filter, filter] and is read turned
// around: x is then the gradient of an output and y that of its input.
template <typename T>
struct ImplicitArgs {
  ImplicitShape shape;
  OutputGrad<T> x;  // numbers as they are unless `turned`
  const T* w;
  LooseIn<T> b;
  T* y;
  bool turned;
};

// With `pooled`, y gets the largest of each window of 2 x 2 after the curve, which must not
// decrease, and a what the windows hold; null where that is not wanted.
template <typename T>
struct PooledOutput {
  bool pooled = false;
  Curve curve = Curve::none;
  T* a = nullptr;
};
template <typename T>
cudaError_t launch_conv2d_implicit(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                                   void* workspace, cudaStream_t stream);

// dw[k, c, filter, filter] = sum over the images of dy by x, db[k] = sum of dy; both may be wide.
const char* refuse_implicit_grad_w(const ImplicitShape& shape, size_t width, size_t shared_memory);
size_t implicit_grad_w_workspace(const ImplicitShape& shape, size_t width, int processors);
template <typename T>
struct ImplicitGradWArgs {
  ImplicitShape shape;
  const T* x;
  OutputGrad<T> dy;
  LooseOut<T> dw, db;
};
template <typename T>
cudaError_t launch_conv2d_grad_w_implicit(const ImplicitGradWArgs<T>& args, void* workspace,
                                          int processors, cudaStream_t stream);

}  // namespace ridgeline::cuda
