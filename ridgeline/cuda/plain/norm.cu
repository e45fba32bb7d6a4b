#include "ridgeline/cuda/plain/index.cuh"
#include "ridgeline/cuda/plain/norm.h"

namespace ridgeline::cuda {
namespace {

constexpr int kChannelThreads = 1024;

// One block per row.
template <typename T>
__global__ void layer_norm_kernel(LayerNormArgs<T> args) {
  using A = Accumulated<T>;
  const int64_t row = blockIdx.x;
  const T* x = args.x + row * args.width;
  T* y = args.y + row * args.width;
  A sum = A(0), squares = A(0);
  for (int j = threadIdx.x; j < args.width; j += blockDim.x) sum += A(x[j]);
  const A mean = block_sum<kThreads>(sum) / A(args.width);
  for (int j = threadIdx.x; j < args.width; j += blockDim.x) {
    squares += (A(x[j]) - mean) * (A(x[j]) - mean);
  }
  const A var = block_sum<kThreads>(squares) / A(args.width);
  const A rstd = A(1) / sqrt(var + A(args.epsilon));
  for (int j = threadIdx.x; j < args.width; j += blockDim.x) {
    A value = (A(x[j]) - mean) * rstd;
    if (args.gamma) value *= args.gamma[j];
    if (args.beta) value += args.beta[j];
    y[j] = T(value);
  }
  if (threadIdx.x != 0) return;
  if (args.mean != nullptr) args.mean[row] = mean;
  if (args.rstd != nullptr) args.rstd[row] = rstd;
}

// dx, with one block per row.
template <typename T>
__global__ void layer_norm_grad_kernel(LayerNormGradArgs<T> args) {
  using A = Accumulated<T>;
  const int64_t row = blockIdx.x;
  const T *x = args.x + row * args.width, *dy = args.dy + row * args.width;
  const A mean = args.mean[row], rstd = args.rstd[row];
  const auto slope = [&](int j) { return args.gamma ? A(dy[j]) * args.gamma[j] : A(dy[j]); };
  A sum = A(0), along = A(0);
  for (int j = threadIdx.x; j < args.width; j += blockDim.x) {
    sum += slope(j);
    along += slope(j) * ((A(x[j]) - mean) * rstd);
  }
  sum = block_sum<kThreads>(sum) / A(args.width);
  along = block_sum<kThreads>(along) / A(args.width);
  for (int j = threadIdx.x; j < args.width; j += blockDim.x) {
    args.dx[row * args.width + j] = T(rstd * (slope(j) - sum - (A(x[j]) - mean) * rstd * along));
  }
}

// dgamma and dbeta: 32 columns per block; its eight warps split the rows, and their sums are added
// in order.
template <typename T>
__global__ void layer_norm_grad_weights_kernel(LayerNormGradArgs<T> args) {
  using A = Accumulated<T>;
  __shared__ A sums[8][32], alongs[8][32];
  const int j = blockIdx.x * 32 + threadIdx.x;
  A sum = A(0), along = A(0);
  if (j < args.width) {
    for (int64_t row = threadIdx.y; row < args.rows; row += 8) {
      const A slope = A(args.dy[row * args.width + j]);
      sum += slope;
      along += slope * ((A(args.x[row * args.width + j]) - args.mean[row]) * args.rstd[row]);
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  alongs[threadIdx.y][threadIdx.x] = along;
  __syncthreads();
  if (threadIdx.y != 0 || j >= args.width) return;
  for (int i = 1; i < 8; ++i) {
    sum += sums[i][threadIdx.x];
    along += alongs[i][threadIdx.x];
  }
  if (args.dbeta) args.dbeta.put(j, sum);
  if (args.dgamma) args.dgamma.put(j, along);
}

// Calls f(offset) for this thread's share of the values of channel `c`.
template <typename F>
__device__ void for_channel(int n, int channels, int pixels, int c, F f) {
  for (int64_t j = threadIdx.x; j < int64_t(n) * pixels; j += blockDim.x) {
    f((j / pixels * channels + c) * pixels + j % pixels);
  }
}

// One block per channel.
template <typename T>
__global__ void __launch_bounds__(kChannelThreads) batch_norm_kernel(BatchNormArgs<T> args) {
  using A = Accumulated<T>;
  const int c = blockIdx.x;
  const A count = A(args.n) * A(args.pixels);
  const auto each = [&](auto f) { for_channel(args.n, args.c, args.pixels, c, f); };
  A sum = A(0), squares = A(0);
  each([&](int64_t at) { sum += A(args.x[at]); });
  const A mean = block_sum<kChannelThreads>(sum) / count;
  each([&](int64_t at) { squares += (A(args.x[at]) - mean) * (A(args.x[at]) - mean); });
  const A var = block_sum<kChannelThreads>(squares) / count;
  const A rstd = A(1) / sqrt(var + A(args.epsilon));
  const A gamma = args.gamma ? args.gamma[c] : A(1);
  const A beta = args.beta ? args.beta[c] : A(0);
  each([&](int64_t at) { args.y[at] = T((A(args.x[at]) - mean) * rstd * gamma + beta); });
  if (threadIdx.x != 0) return;
  args.mean[c] = mean;
  args.rstd[c] = rstd;
  const A momentum = A(args.momentum), unbiased = var * (count / (count - A(1)));
  args.running_mean[c] += momentum * (mean - args.running_mean[c]);
  args.running_var[c] += momentum * (unbiased - args.running_var[c]);
  if (c == 0) ++*args.batches;
}

template <typename T>
__global__ void __launch_bounds__(kChannelThreads)
    batch_norm_grad_kernel(BatchNormGradArgs<T> args) {
  using A = Accumulated<T>;
  const int c = blockIdx.x;
  const A count = A(args.n) * A(args.pixels), mean = args.mean[c], rstd = args.rstd[c];
  const auto each = [&](auto f) { for_channel(args.n, args.c, args.pixels, c, f); };
  A sum = A(0), along = A(0);
  each([&](int64_t at) {
    sum += A(args.dy[at]);
    along += A(args.dy[at]) * ((A(args.x[at]) - mean) * rstd);
  });
  sum = block_sum<kChannelThreads>(sum);
  along = block_sum<kChannelThreads>(along);
  if (threadIdx.x == 0) {
    if (args.dbeta) args.dbeta.put(c, sum);
    if (args.dgamma) args.dgamma.put(c, along);
  }
  if (args.dx == nullptr) return;
  const A factor = args.gamma ? args.gamma[c] * rstd : rstd;
  const A level = sum / count, tilt = along / count;
  each([&](int64_t at) {
    args.dx[at] = T(factor * (A(args.dy[at]) - level - (A(args.x[at]) - mean) * rstd * tilt));
  });
}

template <typename T>
__global__ void batch_norm_infer_kernel(BatchNormInferArgs<T> args) {
  using A = Accumulated<T>;
  const int64_t count = int64_t(args.n) * args.c * args.pixels;
  for (int64_t i = first_index(); i < count; i += index_stride()) {
    const int c = int(i / args.pixels % args.c);
    const A gamma = args.gamma ? args.gamma[c] : A(1);
    const A beta = args.beta ? args.beta[c] : A(0);
    const A scale = gamma / sqrt(args.var[c] + A(args.epsilon));
    args.y[i] = T((A(args.x[i]) - args.mean[c]) * scale + beta);
  }
}

}  // namespace

template <typename T>
cudaError_t launch_layer_norm(const LayerNormArgs<T>& args, cudaStream_t stream) {
  layer_norm_kernel<T><<<unsigned(args.rows), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_layer_norm_grad(const LayerNormGradArgs<T>& args, cudaStream_t stream) {
  if (args.dx != nullptr) {
    layer_norm_grad_kernel<T><<<unsigned(args.rows), kThreads, 0, stream>>>(args);
  }
  if (args.dgamma || args.dbeta) {
    const auto blocks = unsigned((args.width + 31) / 32);
    layer_norm_grad_weights_kernel<T><<<blocks, dim3(32, 8), 0, stream>>>(args);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_batch_norm(const BatchNormArgs<T>& args, cudaStream_t stream) {
  batch_norm_kernel<T><<<unsigned(args.c), kChannelThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_batch_norm_grad(const BatchNormGradArgs<T>& args, cudaStream_t stream) {
  batch_norm_grad_kernel<T><<<unsigned(args.c), kChannelThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_batch_norm_infer(const BatchNormInferArgs<T>& args, cudaStream_t stream) {
  const unsigned blocks = blocks_for(int64_t(args.n) * args.c * args.pixels);
  batch_norm_infer_kernel<T><<<blocks, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

#define RIDGELINE_LAUNCH_NORM(T)                                                          \
  template cudaError_t launch_layer_norm(const LayerNormArgs<T>&, cudaStream_t);          \
  template cudaError_t launch_layer_norm_grad(const LayerNormGradArgs<T>&, cudaStream_t); \
  template cudaError_t launch_batch_norm(const BatchNormArgs<T>&, cudaStream_t);          \
  template cudaError_t launch_batch_norm_grad(const BatchNormGradArgs<T>&, cudaStream_t); \
  template cudaError_t launch_batch_norm_infer(const BatchNormInferArgs<T>&, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_NORM)

}  // namespace ridgeline::cuda
