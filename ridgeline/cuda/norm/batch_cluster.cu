#include "ridgeline/cuda/norm/batch_cluster.h"
#include "ridgeline/cuda/norm/cluster_sum.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kBlocks = 8;  // per cluster: the most that every GPU supports
constexpr int kNormThreads = 512, kWarps = kNormThreads / 32;

// Calls f(offset) for this thread's runs of kEach values of channel `c`; a warp takes an image.
template <int kEach, typename F>
__device__ void for_runs(int n, int channels, int pixels, int c, F f) {
  const int first = int(blockIdx.x % kBlocks) * kWarps + int(threadIdx.x) / 32;
  for (int i = first; i < n; i += kBlocks * kWarps) {
    const int64_t plane = (int64_t(i) * channels + c) * pixels;
#pragma unroll 4
    for (int at = int(threadIdx.x) % 32 * kEach; at < pixels; at += 32 * kEach) f(plane + at);
  }
}

template <typename T, int kEach>
__global__ void __launch_bounds__(kNormThreads) batch_norm_cluster_kernel(BatchNormArgs<T> args) {
#if __CUDA_ARCH__ >= 900
  using A = Accumulated<T>;
  using Run = Numbers<T, kEach>;
  __shared__ A slots[2];
  const int c = int(blockIdx.x) / kBlocks;
  const A count = A(args.n) * A(args.pixels);
  const auto each = [&](auto f) { for_runs<kEach>(args.n, args.c, args.pixels, c, f); };
  const auto load = [&](int64_t at) { return *reinterpret_cast<const Run*>(args.x + at); };
  A sum = A(0), squares = A(0);
  each([&](int64_t at) {
    const Run run = load(at);
#pragma unroll
    for (int e = 0; e < kEach; ++e) sum += A(run.values[e]);
  });
  const A mean = cluster_sum<kBlocks, kNormThreads>(sum, &slots[0]) / count;
  each([&](int64_t at) {
    const Run run = load(at);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      squares += (A(run.values[e]) - mean) * (A(run.values[e]) - mean);
    }
  });
  const A var = cluster_sum<kBlocks, kNormThreads>(squares, &slots[1]) / count;
  const A rstd = A(1) / sqrt(var + A(args.epsilon));
  const A gamma = args.gamma ? args.gamma[c] : A(1);
  const A beta = args.beta ? args.beta[c] : A(0);
  each([&](int64_t at) {
    Run run = load(at);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      run.values[e] = T((A(run.values[e]) - mean) * rstd * gamma + beta);
    }
    *reinterpret_cast<Run*>(args.y + at) = run;
  });
  if (blockIdx.x % kBlocks == 0 && threadIdx.x == 0) {
    args.mean[c] = mean;
    args.rstd[c] = rstd;
    const A momentum = A(args.momentum), unbiased = var * (count / (count - A(1)));
    args.running_mean[c] += momentum * (mean - args.running_mean[c]);
    args.running_var[c] += momentum * (unbiased - args.running_var[c]);
    if (c == 0) ++*args.batches;
  }
  cluster_sync();  // no block exits while others may still read its sums
#endif
}

template <typename T, int kEach>
__global__ void __launch_bounds__(kNormThreads)
    batch_norm_grad_cluster_kernel(BatchNormGradArgs<T> args) {
#if __CUDA_ARCH__ >= 900
  using A = Accumulated<T>;
  using Run = Numbers<T, kEach>;
  __shared__ A slots[2];
  const int c = int(blockIdx.x) / kBlocks;
  const A count = A(args.n) * A(args.pixels), mean = args.mean[c], rstd = args.rstd[c];
  const auto each = [&](auto f) { for_runs<kEach>(args.n, args.c, args.pixels, c, f); };
  const auto load = [&](const T* from) { return *reinterpret_cast<const Run*>(from); };
  A sum = A(0), along = A(0);
  each([&](int64_t at) {
    const Run x = load(args.x + at), dy = load(args.dy + at);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      sum += A(dy.values[e]);
      along += A(dy.values[e]) * ((A(x.values[e]) - mean) * rstd);
    }
  });
  sum = cluster_sum<kBlocks, kNormThreads>(sum, &slots[0]);
  along = cluster_sum<kBlocks, kNormThreads>(along, &slots[1]);
  if (blockIdx.x % kBlocks == 0 && threadIdx.x == 0) {
    if (args.dbeta) args.dbeta.put(c, sum);
    if (args.dgamma) args.dgamma.put(c, along);
  }
  if (args.dx != nullptr) {
    const A factor = args.gamma ? args.gamma[c] * rstd : rstd;
    const A level = sum / count, tilt = along / count;
    each([&](int64_t at) {
      const Run x = load(args.x + at), dy = load(args.dy + at);
      Run dx;
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        dx.values[e] =
            T(factor * (A(dy.values[e]) - level - (A(x.values[e]) - mean) * rstd * tilt));
      }
      *reinterpret_cast<Run*>(args.dx + at) = dx;
    });
  }
  cluster_sync();  // no block exits while others may still read its sums
#endif
}

template <typename Args>
cudaError_t launch(void (*kernel)(Args), const Args& args, cudaStream_t stream) {
  return launch_clusters<kBlocks>(kernel, args.c, kNormThreads, 0, args, stream);
}

}  // namespace

template <typename T>
cudaError_t launch_batch_norm_cluster(const BatchNormArgs<T>& args, cudaStream_t stream) {
  constexpr int kEach = 16 / sizeof(T);
  if (args.pixels % kEach == 0) return launch(batch_norm_cluster_kernel<T, kEach>, args, stream);
  return launch(batch_norm_cluster_kernel<T, 1>, args, stream);
}

template <typename T>
cudaError_t launch_batch_norm_grad_cluster(const BatchNormGradArgs<T>& args, cudaStream_t stream) {
  constexpr int kEach = 16 / sizeof(T);
  if (args.pixels % kEach == 0) {
    return launch(batch_norm_grad_cluster_kernel<T, kEach>, args, stream);
  }
  return launch(batch_norm_grad_cluster_kernel<T, 1>, args, stream);
}

#define RIDGELINE_LAUNCH_BATCH_NORM(T)                                                   \
  template cudaError_t launch_batch_norm_cluster(const BatchNormArgs<T>&, cudaStream_t); \
  template cudaError_t launch_batch_norm_grad_cluster(const BatchNormGradArgs<T>&, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_BATCH_NORM)

}  // namespace ridgeline::cuda
