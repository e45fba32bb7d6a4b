#include <algorithm>

#include "ridgeline/core/philox.h"
#include "ridgeline/cuda/plain/accumulate.cuh"
#include "ridgeline/cuda/plain/activation.cuh"
#include "ridgeline/cuda/plain/elementwise.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 2048;  // a few waves of any GPU; a loop covers the rest

unsigned blocks_for(int64_t count) {
  return unsigned(std::min((count + kThreads - 1) / kThreads, kMostBlocks));
}

__device__ int64_t first_index() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ int64_t stride() { return int64_t(gridDim.x) * blockDim.x; }

// 1 / (1 + e^-x) with a relative error of a few roundings on either side of 0.
template <typename A>
__device__ A sigmoid(A x) {
  return A(1) / (A(1) + exp(-x));
}

template <typename A>
__device__ A value_of(const ActivationArgs& f, A x) {
  switch (f.fn) {
    case ElementwiseFn::relu:
      return activation_value(ActivationFn::relu, x);
    case ElementwiseFn::tanh:
      return activation_value(ActivationFn::tanh, x);
    case ElementwiseFn::sigmoid:
      return activation_value(ActivationFn::sigmoid, x);
    case ElementwiseFn::gelu:
      return activation_value(ActivationFn::gelu, x);
    case ElementwiseFn::silu:
      return x * sigmoid(x);
    case ElementwiseFn::leaky_relu:
      return x < A(0) ? A(f.parameter) * x : x;
    case ElementwiseFn::elu:
      return x < A(0) ? A(f.parameter) * expm1(x) : x;
    case ElementwiseFn::softplus:
      return log1p(exp(-abs(x))) + (x < A(0) ? A(0) : x);
    case ElementwiseFn::hardswish: {
      const A part = x + A(3);
      return x * (part < A(0) ? A(0) : part > A(6) ? A(6) : part) * A(1.0 / 6);
    }
  }
  return x;
}

// f' from the value that the forward pass saved (saves_output).
template <typename A>
__device__ A slope_of(const ActivationArgs& f, A saved) {
  switch (f.fn) {
    case ElementwiseFn::relu:
      return activation_slope(ActivationFn::relu, saved);
    case ElementwiseFn::tanh:
      return activation_slope(ActivationFn::tanh, saved);
    case ElementwiseFn::sigmoid:
      return activation_slope(ActivationFn::sigmoid, saved);
    case ElementwiseFn::gelu:
      return activation_slope(ActivationFn::gelu, saved);
    case ElementwiseFn::silu:
      return sigmoid(saved) * (A(1) + saved * sigmoid(-saved));
    case ElementwiseFn::leaky_relu:
      return saved > A(0) ? A(1) : A(f.parameter);
    case ElementwiseFn::elu:
      return saved > A(0) ? A(1) : A(f.parameter) * exp(saved);
    case ElementwiseFn::softplus:
      return sigmoid(saved);
    case ElementwiseFn::hardswish:
      return saved < A(-3) ? A(0) : saved > A(3) ? A(1) : saved * A(1.0 / 3) + A(0.5);
  }
  return A(1);
}

template <typename T>
__global__ void activation_kernel(ActivationArgs activation, const T* x, T* y, int64_t count) {
  for (int64_t i = first_index(); i < count; i += stride()) {
    y[i] = T(value_of(activation, Accumulated<T>(x[i])));
  }
}

template <typename T>
__global__ void activation_grad_kernel(ActivationArgs activation, const T* saved, const T* dy,
                                       T* dx, int64_t count) {
  using A = Accumulated<T>;
  for (int64_t i = first_index(); i < count; i += stride()) {
    dx[i] = T(A(dy[i]) * slope_of(activation, A(saved[i])));
  }
}

template <typename A>
__device__ A value_of(UnaryFn fn, A x) {
  switch (fn) {
    case UnaryFn::exp:
      return exp(x);
    case UnaryFn::log:
      return log(x);
    case UnaryFn::sqrt:
      return sqrt(x);
    case UnaryFn::reciprocal:
      return A(1) / x;
    case UnaryFn::sin:
      return sin(x);
    case UnaryFn::floor:
      return floor(x);
    case UnaryFn::round:
      return rint(x);
    case UnaryFn::step:
      return x > A(0) ? A(1) : x <= A(0) ? A(0) : x;
  }
  return x;
}

template <typename A>
__device__ A slope_of(UnaryFn fn, A x) {
  switch (fn) {
    case UnaryFn::exp:
      return exp(x);
    case UnaryFn::log:
      return A(1) / x;
    case UnaryFn::sqrt:
      return A(0.5) / sqrt(x);
    case UnaryFn::reciprocal:
      return A(-1) / (x * x);
    case UnaryFn::sin:
      return cos(x);
    case UnaryFn::floor:
    case UnaryFn::round:
    case UnaryFn::step:
      break;
  }
  return A(0);
}

template <typename T>
__global__ void unary_kernel(UnaryFn fn, const T* x, T* y, int64_t count) {
  for (int64_t i = first_index(); i < count; i += stride()) {
    y[i] = T(value_of(fn, Accumulated<T>(x[i])));
  }
}

template <typename T>
__global__ void unary_grad_kernel(UnaryFn fn, const T* x, const T* dy, T* dx, int64_t count) {
  using A = Accumulated<T>;
  for (int64_t i = first_index(); i < count; i += stride()) {
    dx[i] = T(A(dy[i]) * slope_of(fn, A(x[i])));
  }
}

// Each thread takes one block of four Philox words; `first` need not be at the start of one.
template <typename T>
__global__ void dropout_kernel(DropoutArgs args, const T* x, T* y, int64_t count) {
  using A = Accumulated<T>;
  const Philox random{args.seed, args.stream_base + uint64_t(*args.step + *args.tick)};
  const float p = float(args.p);
  const A factor = A(1.0 / (1.0 - args.p));
  const uint64_t begin = args.first / 4;
  const int64_t groups = int64_t((args.first + uint64_t(count) + 3) / 4 - begin);
  for (int64_t g = first_index(); g < groups; g += stride()) {
    const Philox::Words words = random.words(begin + uint64_t(g));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int64_t i = int64_t((begin + uint64_t(g)) * 4 + e - args.first);
      if (i < 0 || i >= count) continue;
      const bool keep = float(words.w[e] >> 8) * 0x1p-24f >= p;
      y[i] = keep ? T(A(x[i]) * factor) : T(0.0f);
    }
  }
}

template <typename T>
__global__ void fill_rows_kernel(const T* b, T* y, int64_t columns, int64_t count) {
  for (int64_t i = first_index(); i < count; i += stride()) y[i] = b[i % columns];
}

// 32 columns per block; its eight warps split the rows, and their sums are added in order.
template <typename T, typename Sum>
__global__ void sum_rows_kernel(const T* dy, Sum* db, int64_t rows, int64_t columns) {
  using A = Accumulated<T>;
  __shared__ A part[8][32];
  const int64_t c = int64_t(blockIdx.x) * 32 + threadIdx.x;
  A sum = A(0);
  if (c < columns) {
    for (int64_t r = threadIdx.y; r < rows; r += 8) sum += A(dy[r * columns + c]);
  }
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= columns) return;
  for (int i = 1; i < 8; ++i) sum += part[i][threadIdx.x];
  db[c] = Sum(sum);
}

template <typename T>
__global__ void widen_kernel(const T* x, float* y, int64_t count) {
  for (int64_t i = first_index(); i < count; i += stride()) y[i] = float(x[i]);
}

}  // namespace

template <typename T>
cudaError_t launch_activation(const ActivationArgs& activation, const T* x, T* y, int64_t count,
                              cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  activation_kernel<<<blocks_for(count), kThreads, 0, stream>>>(activation, x, y, count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_activation_grad(const ActivationArgs& activation, const T* saved, const T* dy,
                                   T* dx, int64_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  activation_grad_kernel<<<blocks_for(count), kThreads, 0, stream>>>(activation, saved, dy, dx,
                                                                     count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_dropout(const DropoutArgs& args, const T* x, T* y, int64_t count,
                           cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  dropout_kernel<<<blocks_for(count / 4 + 2), kThreads, 0, stream>>>(args, x, y, count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_unary(UnaryFn fn, const T* x, T* y, int64_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  unary_kernel<<<blocks_for(count), kThreads, 0, stream>>>(fn, x, y, count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_unary_grad(UnaryFn fn, const T* x, const T* dy, T* dx, int64_t count,
                              cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  unary_grad_kernel<<<blocks_for(count), kThreads, 0, stream>>>(fn, x, dy, dx, count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_fill_rows(const T* b, T* y, int64_t rows, int64_t columns, cudaStream_t stream) {
  const int64_t count = rows * columns;
  if (count == 0) return cudaSuccess;
  fill_rows_kernel<<<blocks_for(count), kThreads, 0, stream>>>(b, y, columns, count);
  return cudaGetLastError();
}

template <typename T, typename Sum>
cudaError_t launch_sum_rows(const T* dy, Sum* db, int64_t rows, int64_t columns,
                            cudaStream_t stream) {
  if (columns == 0) return cudaSuccess;
  const auto blocks = unsigned((columns + 31) / 32);
  sum_rows_kernel<<<blocks, dim3(32, 8), 0, stream>>>(dy, db, rows, columns);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_widen(const T* x, float* y, int64_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  widen_kernel<<<blocks_for(count), kThreads, 0, stream>>>(x, y, count);
  return cudaGetLastError();
}

#define RIDGELINE_LAUNCH_ELEMENTWISE(T)                                                           \
  template cudaError_t launch_activation(const ActivationArgs&, const T*, T*, int64_t,            \
                                         cudaStream_t);                                           \
  template cudaError_t launch_activation_grad(const ActivationArgs&, const T*, const T*, T*,      \
                                              int64_t, cudaStream_t);                             \
  template cudaError_t launch_dropout(const DropoutArgs&, const T*, T*, int64_t, cudaStream_t);   \
  template cudaError_t launch_unary(UnaryFn, const T*, T*, int64_t, cudaStream_t);                \
  template cudaError_t launch_unary_grad(UnaryFn, const T*, const T*, T*, int64_t, cudaStream_t); \
  template cudaError_t launch_fill_rows(const T*, T*, int64_t, int64_t, cudaStream_t);            \
  template cudaError_t launch_sum_rows(const T*, T*, int64_t, int64_t, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_ELEMENTWISE)

#define RIDGELINE_LAUNCH_WIDENING(T)                                                      \
  template cudaError_t launch_sum_rows(const T*, float*, int64_t, int64_t, cudaStream_t); \
  template cudaError_t launch_widen(const T*, float*, int64_t, cudaStream_t);
RIDGELINE_LAUNCH_WIDENING(__nv_bfloat16)
RIDGELINE_LAUNCH_WIDENING(__half)

}  // namespace ridgeline::cuda
