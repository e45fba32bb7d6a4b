#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "ridgeline/cuda/conv/pooled.h"
#include "ridgeline/cuda/plain/mixed_operand.h"

// Convolutions as implicit matrix products (implicit GEMM) on tensor cores: nothing is unrolled in
// memory. T: __nv_bfloat16, __half, or float, whose factors are rounded to tf32. Square filters
// without dilation. Deterministic.
namespace ridgeline::cuda {

struct ImplicitShape {
  int n = 0, c = 0, h = 0, w = 0, k = 0, filter = 0, pad = 0;
  // Only launch_conv2d_implicit() and launch_conv2d_grad_w_implicit() take other strides and
  // groups.
  int stride = 1, groups = 1;
  // The pixels of x are `spread` apart with zeros between them, and `below` and `right` zeros
  // follow the last.
  int spread = 1, below = 0, right = 0;

  constexpr int group_c() const { return c / groups; }
  constexpr int group_k() const { return k / groups; }
  // The extents of the image as the filters see it, including its padding.
  constexpr int rows() const { return (h - 1) * spread + 1 + below + 2 * pad; }
  constexpr int columns() const { return (w - 1) * spread + 1 + right + 2 * pad; }
  constexpr int out_h() const { return (rows() - filter) / stride + 1; }
  constexpr int out_w() const { return (columns() - filter) / stride + 1; }
  // The gradient of x is the convolution of the gradient of y with the flipped filters. A stride
  // becomes the spread of y's pixels.
  constexpr ImplicitShape flipped() const {
    return {n,
            k,
            out_h(),
            out_w(),
            c,
            filter,
            filter - 1 - pad,
            1,
            groups,
            stride,
            (rows() - filter) % stride,
            (columns() - filter) % stride};
  }
};

// Why no kernel takes this shape with factors of `width` bytes and this much shared memory per
// block; "" if one does.
const char* refuse_implicit(const ImplicitShape& shape, size_t width, size_t shared_memory);
size_t implicit_workspace(const ImplicitShape& shape, size_t width);  // bytes

// y[n, k, out_h, out_w] = x * w + b. With `flipped`, w is [c, k, filter, filter] and is read
// flipped; x is then the gradient of an output, and y the gradient of its input.
template <typename T>
struct ImplicitArgs {
  ImplicitShape shape;
  const T* x;
  const T* w;
  MixedIn<T> b;
  T* y;
  bool flipped;
  bool last = false;  // x is channels-last, with c padded to whole chunks of 16 bytes
};

// With `pooled`, y receives the maximum of each 2 x 2 window after the activation, which must be
// non-decreasing, and `a` the values before the pool; `a` is null if not wanted.
template <typename T>
struct PooledOutput {
  bool pooled = false;
  ActivationFn activation = ActivationFn::none;
  T* a = nullptr;
};
template <typename T>
cudaError_t launch_conv2d_implicit(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                                   void* workspace, cudaStream_t stream);

// The gradients of a convolution: dx as above from `w`, dw[k, c, filter, filter] = sum over the
// images of dy by x, db[k] = sum of dy; dw and db may be in the accumulator dtype. One launch
// prepares the operands of the products (none are needed for one input channel without dx and
// stride). One launch computes dx and one computes dw and db; these two may run concurrently.
constexpr bool needs_grad_maps(const ImplicitShape& shape, bool dx) {
  return shape.c > 1 || dx || shape.stride > 1;
}
const char* refuse_implicit_grads(const ImplicitShape& shape, bool dx, size_t width,
                                  size_t shared_memory);
struct GradBytes {
  size_t maps, total;  // bytes of the workspace: the prepared operands, and everything
};
GradBytes implicit_grads_bytes(const ImplicitShape& shape, bool dx, size_t width, int sms,
                               size_t shared_memory);
inline size_t implicit_grads_workspace(const ImplicitShape& shape, bool dx, size_t width, int sms,
                                       size_t shared_memory) {
  return implicit_grads_bytes(shape, dx, width, sms, shared_memory).total;
}
template <typename T>
struct ImplicitGradsArgs {
  ImplicitShape shape;
  const T* x;
  OutputGrad<T> dy;
  MixedOut<T> dw, db;
  const T* w = nullptr;  // null, like dx, if dx is not wanted
  T* dx = nullptr;
  void* workspace = nullptr;
  int sms = 0;
  size_t shared_memory = 0;  // available per block
};
template <typename T>
cudaError_t launch_conv2d_grad_maps(const ImplicitGradsArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_conv2d_grad_w_implicit(const ImplicitGradsArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_conv2d_grad_x_maps(const ImplicitGradsArgs<T>& args, cudaStream_t stream);

}  // namespace ridgeline::cuda
