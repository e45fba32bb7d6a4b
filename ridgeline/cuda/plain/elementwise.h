#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ridgeline::cuda {

// The functions of ActivationKind (ops/activation.h), in the same order; nvcc cannot compile that
// header.
enum class ElementwiseFn : int {
  relu,
  tanh,
  sigmoid,
  gelu,
  silu,
  leaky_relu,
  elu,
  softplus,
  hardswish
};

// An activation and its parameter.
struct ActivationArgs {
  ElementwiseFn fn = ElementwiseFn::relu;
  double parameter = 0;
};

// y = f(x)
template <typename T>
cudaError_t launch_activation(const ActivationArgs& activation, const T* x, T* y, int64_t count,
                              cudaStream_t stream);

// dx = dy * f'(saved)
template <typename T>
cudaError_t launch_activation_grad(const ActivationArgs& activation, const T* saved, const T* dy,
                                   T* dx, int64_t count, cudaStream_t stream);

// y = keep ? x / (1 - p) : 0. Element i is kept if Philox number `first + i` of stream `stream_base
// + *step + *tick` is at least p.
struct DropoutArgs {
  double p = 0;
  uint64_t seed = 0, stream_base = 0, first = 0;
  const int64_t* step = nullptr;
  const int32_t* tick = nullptr;
};
template <typename T>
cudaError_t launch_dropout(const DropoutArgs& args, const T* x, T* y, int64_t count,
                           cudaStream_t stream);

// The functions of UnaryKind (ops/unary.h), in the same order.
enum class UnaryFn : int { exp, log, sqrt, reciprocal, sin, floor, round, step };

// y = f(x)
template <typename T>
cudaError_t launch_unary(UnaryFn fn, const T* x, T* y, int64_t count, cudaStream_t stream);

// dx = dy * f'(x)
template <typename T>
cudaError_t launch_unary_grad(UnaryFn fn, const T* x, const T* dy, T* dx, int64_t count,
                              cudaStream_t stream);

// y[r, c] = b[c], for products that add to y and have no bias of their own.
template <typename T>
cudaError_t launch_fill_rows(const T* b, T* y, int64_t rows, int64_t columns, cudaStream_t stream);

// db[c] = sum over r of dy[r, c]. Sum is T, or float if T is a half type.
template <typename T, typename Sum>
cudaError_t launch_sum_rows(const T* dy, Sum* db, int64_t rows, int64_t columns,
                            cudaStream_t stream);

// y = x, where T is a half type
template <typename T>
cudaError_t launch_widen(const T* x, float* y, int64_t count, cudaStream_t stream);

}  // namespace ridgeline::cuda
