#include "ridgeline/cuda/channels_last/batch_norm.cuh"

namespace ridgeline::cuda {
namespace {

// Gives a window's gradient to its largest pixel and zero to the other three.
template <typename T>
__device__ void unpool(const Run8<T> (&active)[4], const Run8<T>& dy, float (&g)[4][kRun]) {
#pragma unroll
  for (int e = 0; e < kRun; ++e) {
    int best = 0;
    float most = active[0][e];
#pragma unroll
    for (int i = 1; i < 4; ++i) {
      if (exceeds(active[i][e], most)) {
        most = active[i][e];
        best = i;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) g[i][e] = i == best && most > 0 ? dy[e] : 0.0f;
  }
}

// Calls f(at, x, g) for each run of a thread's channels, with its offset, x, and the gradient that
// enters the normalisation.
template <typename T, NormHead kHead, typename F>
__device__ void each_gradient(const RowsNormGradArgs<T>& args, const RowShare& share, F f) {
  if constexpr (kHead == NormHead::pool_relu) {
    for (int64_t window = share.first; window < args.rows / 4; window += share.stride) {
      const Quad quad(window, args.h, args.w);
      Run8<T> x[4], active[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t at = quad.row[i] * args.c + share.channel;
        active[i] = load_run(args.active + at);
        x[i] = load_run(args.x + at);
      }
      float g[4][kRun];
      unpool(active, load_run(args.dy + window * args.c + share.channel), g);
#pragma unroll
      for (int i = 0; i < 4; ++i) f(quad.row[i] * args.c + share.channel, x[i], g[i]);
    }
  } else {
    constexpr int kRows = 2;
    for (int64_t row = share.first; row < args.rows; row += kRows * share.stride) {
      Run8<T> x[kRows], dy[kRows], active[kRows];
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        const int64_t r = row + u * share.stride, at = r * args.c + share.channel;
        if (r >= args.rows) continue;
        x[u] = load_run(args.x + at);
        dy[u] = load_run(args.dy + at);
        if constexpr (kHead == NormHead::relu) active[u] = load_run(args.active + at);
      }
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        const int64_t r = row + u * share.stride;
        if (r >= args.rows) continue;
        float g[kRun];
#pragma unroll
        for (int e = 0; e < kRun; ++e) {
          g[e] = kHead == NormHead::relu && !(active[u][e] > 0) ? 0.0f : dy[u][e];
        }
        f(r * args.c + share.channel, x[u], g);
      }
    }
  }
}

// Adds a thread's two values per channel over the rows of the block and stores the block's sums.
__device__ void store_block_sums(const RowShare& share, const float (&first)[kRun],
                                 const float (&second)[kRun], float* partial, int c) {
  __shared__ float sums[2][kRowThreads * kRun];
  if (!share.idle) {
#pragma unroll
    for (int e = 0; e < kRun; ++e) {
      sums[0][int(threadIdx.x) * kRun + e] = first[e];
      sums[1][int(threadIdx.x) * kRun + e] = second[e];
    }
  }
  __syncthreads();
  const int width = share.lanes * kRun;
  for (int k = int(threadIdx.x); k < width; k += kRowThreads) {
    float a = 0, b = 0;
    for (int r = 0; r < share.at_once; ++r) {
      a += sums[0][r * width + k];
      b += sums[1][r * width + k];
    }
    const int channel = int(blockIdx.y) * kRowThreads * kRun + k;
    float* to = partial + int64_t(blockIdx.x) * 2 * c;
    to[channel] = a;
    to[c + channel] = b;
  }
}

template <typename T, NormHead kHead>
__global__ void __launch_bounds__(kRowThreads) row_grad_sums_kernel(RowsNormGradArgs<T> args) {
  const RowShare share(args.c);
  float sum[kRun] = {}, along[kRun] = {};
  if (!share.idle) {
    float mean[kRun];
#pragma unroll
    for (int e = 0; e < kRun; ++e) mean[e] = args.mean[share.channel + e];
    each_gradient<T, kHead>(args, share, [&](int64_t at, const Run8<T>& x, const float(&g)[kRun]) {
      Run8<T> masked;
#pragma unroll
      for (int e = 0; e < kRun; ++e) {
        sum[e] += g[e];
        along[e] += g[e] * (x[e] - mean[e]);
        masked.put(e, g[e]);
      }
      if (args.masked != nullptr) store_run(args.masked + at, masked);
    });
  }
  store_block_sums(share, sum, along, args.partial, args.c);
}

// Replaces partial[0, 2, c] by the two terms that the last pass subtracts: the mean of the
// gradient, and the factor of x - mean.
template <typename T>
__global__ void finish_grads_kernel(RowsNormGradArgs<T> args, int blocks) {
  const int channel = int(blockIdx.x) * kFinishChannels + int(threadIdx.x);
  const bool inside = channel < args.c;
  float sum = 0, along = 0;
  for (int g = int(threadIdx.y); inside && g < blocks; g += kFinishParts) {
    const float* from = args.partial + int64_t(g) * 2 * args.c + channel;
    sum += from[0];
    along += from[args.c];
  }
  sum = finish_sum(sum);
  along = finish_sum(along);  // every thread has read its partial sums by now
  if (!inside || threadIdx.y != 0) return;
  const float rstd = args.rstd[channel], slope = along * rstd, count = float(args.rows);
  if (args.dbeta) args.dbeta.put(channel, sum);
  if (args.dgamma) args.dgamma.put(channel, slope);
  args.partial[channel] = sum / count;
  args.partial[args.c + channel] = slope / count * rstd;
}

template <typename T, NormHead kHead>
__global__ void __launch_bounds__(kRowThreads) row_grad_kernel(RowsNormGradArgs<T> args) {
  const RowShare share(args.c);
  if (share.idle) return;
  float mean[kRun], factor[kRun], level[kRun], tilt[kRun];
#pragma unroll
  for (int e = 0; e < kRun; ++e) {
    const int channel = share.channel + e;
    mean[e] = args.mean[channel];
    factor[e] = args.rstd[channel] * (args.gamma ? args.gamma[channel] : 1.0f);
    level[e] = args.partial[channel];
    tilt[e] = args.partial[args.c + channel];
  }
  each_gradient<T, kHead>(args, share, [&](int64_t at, const Run8<T>& x, const float(&g)[kRun]) {
    Run8<T> dx;
#pragma unroll
    for (int e = 0; e < kRun; ++e) {
      dx.put(e, factor[e] * (g[e] - level[e] - (x[e] - mean[e]) * tilt[e]));
    }
    store_run(args.dx + at, dx);
  });
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    row_sums_kernel(const T* __restrict__ dy, float* __restrict__ partial, int64_t rows, int c) {
  const RowShare share(c);
  float sum[kRun] = {}, none[kRun] = {};
  for (int64_t row = share.first; !share.idle && row < rows; row += share.stride) {
    const Run8<T> run = load_run(dy + row * c + share.channel);
#pragma unroll
    for (int e = 0; e < kRun; ++e) sum[e] += run[e];
  }
  store_block_sums(share, sum, none, partial, c);
}

template <typename T>
__global__ void finish_sums_kernel(const float* partial, MixedOut<T> db, int c, int blocks) {
  const int channel = int(blockIdx.x) * kFinishChannels + int(threadIdx.x);
  float sum = 0;
  for (int g = int(threadIdx.y); channel < c && g < blocks; g += kFinishParts) {
    sum += partial[int64_t(g) * 2 * c + channel];
  }
  sum = finish_sum(sum);
  if (channel < c && threadIdx.y == 0) db.put(channel, sum);
}

template <typename T, NormHead kHead>
cudaError_t launch_grad(const RowsNormGradArgs<T>& args, int sms, cudaStream_t stream) {
  const int64_t steps = kHead == NormHead::pool_relu ? args.rows / 4 : args.rows;
  const int blocks = row_blocks(steps, args.c, sms);
  row_grad_sums_kernel<T, kHead><<<row_grid(blocks, args.c), kRowThreads, 0, stream>>>(args);
  finish_grads_kernel<T><<<finish_grid(args.c), kFinishBlock, 0, stream>>>(args, blocks);
  if (args.dx != nullptr) {
    row_grad_kernel<T, kHead><<<pass_grid(steps, args.c, sms), kRowThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

}  // namespace

template <typename T>
cudaError_t launch_rows_norm_grad(const RowsNormGradArgs<T>& args, NormHead head, int sms,
                                  cudaStream_t stream) {
  switch (head) {
    case NormHead::none:
      return launch_grad<T, NormHead::none>(args, sms, stream);
    case NormHead::relu:
      return launch_grad<T, NormHead::relu>(args, sms, stream);
    case NormHead::pool_relu:
      return launch_grad<T, NormHead::pool_relu>(args, sms, stream);
  }
  return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t launch_row_sums(const T* dy, MixedOut<T> db, int64_t rows, int c, float* partial,
                            int sms, cudaStream_t stream) {
  const int blocks = row_blocks(rows, c, sms);
  row_sums_kernel<T><<<row_grid(blocks, c), kRowThreads, 0, stream>>>(dy, partial, rows, c);
  finish_sums_kernel<T><<<finish_grid(c), kFinishBlock, 0, stream>>>(partial, db, c, blocks);
  return cudaGetLastError();
}

#define INSTANTIATE(T)                                                                   \
  template cudaError_t launch_rows_norm_grad(const RowsNormGradArgs<T>&, NormHead, int,  \
                                             cudaStream_t);                              \
  template cudaError_t launch_row_sums(const T*, MixedOut<T>, int64_t, int, float*, int, \
                                       cudaStream_t);
INSTANTIATE(__nv_bfloat16)
INSTANTIATE(__half)
#undef INSTANTIATE

}  // namespace ridgeline::cuda
