#include "ridgeline/cuda/plain/group_norm.h"
#include "ridgeline/cuda/plain/index.cuh"

namespace ridgeline::cuda {
namespace {

// The channel of element j of a run.
__device__ int channel_of(const GroupNormShape& s, int64_t run, int j) {
  return int((run % s.groups * s.width + j) / s.spatial);
}

// One block per run.
template <typename T>
__global__ void group_norm_kernel(GroupNormArgs<T> args) {
  using A = Accumulated<T>;
  const GroupNormShape s = args.shape;
  const int64_t run = blockIdx.x;
  const T* x = args.x + run * s.width;
  T* y = args.y + run * s.width;
  A mean = A(0), squares = A(0);
  if (s.centred) {
    A sum = A(0);
    for (int j = threadIdx.x; j < s.width; j += blockDim.x) sum += A(x[j]);
    mean = block_sum<kThreads>(sum) / A(s.width);
  }
  for (int j = threadIdx.x; j < s.width; j += blockDim.x) {
    squares += (A(x[j]) - mean) * (A(x[j]) - mean);
  }
  const A var = block_sum<kThreads>(squares) / A(s.width);
  const A rstd = A(1) / sqrt(var + A(args.epsilon));
  for (int j = threadIdx.x; j < s.width; j += blockDim.x) {
    const int c = channel_of(s, run, j);
    A value = (A(x[j]) - mean) * rstd;
    if (args.gamma) value *= args.gamma[c];
    if (args.beta) value += args.beta[c];
    y[j] = T(value);
  }
  if (threadIdx.x != 0) return;
  if (args.mean != nullptr) args.mean[run] = mean;
  if (args.rstd != nullptr) args.rstd[run] = rstd;
}

template <typename T>
__device__ Accumulated<T> mean_of(const GroupNormGradArgs<T>& args, int64_t run) {
  return args.mean != nullptr ? args.mean[run] : Accumulated<T>(0);
}

// dx, with one block per run.
template <typename T>
__global__ void group_norm_grad_kernel(GroupNormGradArgs<T> args) {
  using A = Accumulated<T>;
  const GroupNormShape s = args.shape;
  const int64_t run = blockIdx.x;
  const T *x = args.x + run * s.width, *dy = args.dy + run * s.width;
  const A mean = mean_of(args, run), rstd = args.rstd[run];
  const auto slope = [&](int j) {
    return args.gamma ? A(dy[j]) * args.gamma[channel_of(s, run, j)] : A(dy[j]);
  };
  A sum = A(0), along = A(0);
  for (int j = threadIdx.x; j < s.width; j += blockDim.x) {
    sum += slope(j);
    along += slope(j) * ((A(x[j]) - mean) * rstd);
  }
  sum = block_sum<kThreads>(sum) / A(s.width);
  along = block_sum<kThreads>(along) / A(s.width);
  if (!s.centred) sum = A(0);
  for (int j = threadIdx.x; j < s.width; j += blockDim.x) {
    args.dx[run * s.width + j] = T(rstd * (slope(j) - sum - (A(x[j]) - mean) * rstd * along));
  }
}

// dgamma and dbeta, with one block per channel, which is at the same offset in each sample.
template <typename T>
__global__ void group_norm_grad_weights_kernel(GroupNormGradArgs<T> args) {
  using A = Accumulated<T>;
  const GroupNormShape s = args.shape;
  const int c = blockIdx.x;
  const int64_t begin = int64_t(c) * s.spatial, group = begin / s.width;
  const int64_t sample = int64_t(s.groups) * s.width, count = s.runs / s.groups * s.spatial;
  A sum = A(0), along = A(0);
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const int64_t n = i / s.spatial, run = n * s.groups + group;
    const int64_t at = n * sample + begin + i % s.spatial;
    const A slope = A(args.dy[at]);
    sum += slope;
    along += slope * ((A(args.x[at]) - mean_of(args, run)) * args.rstd[run]);
  }
  sum = block_sum<kThreads>(sum);
  along = block_sum<kThreads>(along);
  if (threadIdx.x != 0) return;
  if (args.dbeta) args.dbeta.put(c, sum);
  if (args.dgamma) args.dgamma.put(c, along);
}

}  // namespace

template <typename T>
cudaError_t launch_group_norm(const GroupNormArgs<T>& args, cudaStream_t stream) {
  group_norm_kernel<T><<<unsigned(args.shape.runs), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_group_norm_grad(const GroupNormGradArgs<T>& args, cudaStream_t stream) {
  if (args.dx != nullptr) {
    group_norm_grad_kernel<T><<<unsigned(args.shape.runs), kThreads, 0, stream>>>(args);
  }
  if (args.dgamma || args.dbeta) {
    const auto blocks = unsigned(args.shape.channels());
    group_norm_grad_weights_kernel<T><<<blocks, kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

#define RIDGELINE_LAUNCH_GROUP_NORM(T)                                           \
  template cudaError_t launch_group_norm(const GroupNormArgs<T>&, cudaStream_t); \
  template cudaError_t launch_group_norm_grad(const GroupNormGradArgs<T>&, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_GROUP_NORM)

}  // namespace ridgeline::cuda
