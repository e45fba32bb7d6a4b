#include "ridgeline/cuda/channels_last/batch_norm.cuh"

namespace ridgeline::cuda {
namespace {

// The number of rows that a thread slot takes when it starts at row `first` and advances by
// `stride`, and the number that a block of `at_once` slots takes. The division is made once.
struct RowCounts {
  int64_t whole, rest;

  __device__ RowCounts(int64_t rows, int64_t stride) : whole(rows / stride), rest(rows % stride) {}
  __device__ int64_t of_slot(int64_t first) const { return whole + (first < rest ? 1 : 0); }
  __device__ int64_t of_block(int64_t g, int at_once) const {
    const int64_t left = rest - g * at_once;
    return whole * at_once + (left < 0 ? 0 : left > at_once ? at_once : left);
  }
};

// Combines each thread's mean and sum of squared deviations into those of the block. A thread takes
// its squares around its first value, which is close to the mean when the mean is large.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    row_moments_kernel(const T* __restrict__ x, float* __restrict__ partial, int64_t rows, int c) {
  __shared__ float means[kRowThreads * kRun], squares[kRowThreads * kRun];
  const RowShare share(c);
  const RowCounts counts(rows, share.stride);
  const int64_t count = share.idle ? 0 : counts.of_slot(share.first);
  float origin[kRun], sum[kRun] = {}, square[kRun] = {};
  if (count > 0) {
    const Run8<T> first = load_run(x + share.first * c + share.channel);
#pragma unroll
    for (int e = 0; e < kRun; ++e) origin[e] = first[e];
    int64_t row = share.first;
    for (; row + (kUnroll - 1) * share.stride < rows; row += kUnroll * share.stride) {
      Run8<T> run[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        run[u] = load_run(x + (row + u * share.stride) * c + share.channel);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
        for (int e = 0; e < kRun; ++e) {
          const float off = run[u][e] - origin[e];
          sum[e] += off;
          square[e] += off * off;
        }
      }
    }
    for (; row < rows; row += share.stride) {
      const Run8<T> run = load_run(x + row * c + share.channel);
#pragma unroll
      for (int e = 0; e < kRun; ++e) {
        const float off = run[e] - origin[e];
        sum[e] += off;
        square[e] += off * off;
      }
    }
#pragma unroll
    for (int e = 0; e < kRun; ++e) {
      const float mean = sum[e] / float(count);
      means[int(threadIdx.x) * kRun + e] = origin[e] + mean;
      squares[int(threadIdx.x) * kRun + e] = square[e] - sum[e] * mean;
    }
  }
  __syncthreads();
  const int width = share.lanes * kRun;
  for (int k = int(threadIdx.x); k < width; k += kRowThreads) {
    float total = 0, weighted = 0;
    for (int r = 0; r < share.at_once; ++r) {
      const auto n = float(counts.of_slot(int64_t(blockIdx.x) * share.at_once + r));
      if (n == 0) break;
      total += n;
      weighted += n * means[r * width + k];
    }
    const float mean = total > 0 ? weighted / total : 0.0f;
    float spread = 0;
    for (int r = 0; r < share.at_once; ++r) {
      const auto n = float(counts.of_slot(int64_t(blockIdx.x) * share.at_once + r));
      if (n == 0) break;
      const float off = means[r * width + k] - mean;
      spread += squares[r * width + k] + n * off * off;
    }
    const int channel = int(blockIdx.y) * kRowThreads * kRun + k;
    float* to = partial + int64_t(blockIdx.x) * 2 * c;
    to[channel] = mean;
    to[c + channel] = spread;
  }
}

template <typename T>
__global__ void finish_moments_kernel(RowsNormArgs<T> args, int blocks, int at_once) {
  const int channel = int(blockIdx.x) * kFinishChannels + int(threadIdx.x);
  const bool inside = channel < args.c;
  const auto count = float(args.rows);
  const RowCounts counts(args.rows, int64_t(blocks) * at_once);
  float weighted = 0, spread = 0;
  for (int g = int(threadIdx.y); inside && g < blocks; g += kFinishParts) {
    const auto n = float(counts.of_block(g, at_once));
    weighted += n * args.partial[int64_t(g) * 2 * args.c + channel];
  }
  const float mean = finish_sum(weighted) / count;
  for (int g = int(threadIdx.y); inside && g < blocks; g += kFinishParts) {
    const auto n = float(counts.of_block(g, at_once));
    const float* from = args.partial + int64_t(g) * 2 * args.c + channel;
    const float off = from[0] - mean;
    spread += from[args.c] + n * off * off;
  }
  const float var = finish_sum(spread) / count;
  if (!inside || threadIdx.y != 0) return;
  args.mean[channel] = mean;
  args.rstd[channel] = 1.0f / sqrtf(var + float(args.epsilon));
  const float momentum = float(args.momentum), unbiased = var * (count / (count - 1.0f));
  args.running_mean[channel] += momentum * (mean - args.running_mean[channel]);
  args.running_var[channel] += momentum * (unbiased - args.running_var[channel]);
  if (channel == 0) ++*args.batches;
}

// Scale and shift of a thread's channels.
struct Affine {
  float mean[kRun], scale[kRun], beta[kRun];

  template <typename Args>
  __device__ Affine(const Args& args, int channel) {
#pragma unroll
    for (int e = 0; e < kRun; ++e) {
      mean[e] = args.mean[channel + e];
      scale[e] = args.rstd[channel + e] * (args.gamma ? args.gamma[channel + e] : 1.0f);
      beta[e] = args.beta ? args.beta[channel + e] : 0.0f;
    }
  }
  __device__ float operator()(int e, float x) const { return (x - mean[e]) * scale[e] + beta[e]; }
};

// Values are rounded to T wherever the separate ops would store them.
template <typename T, NormTail kTail>
__device__ void normalise_row(const RowsNormArgs<T>& args, const Affine& affine, const Run8<T>& x,
                              const Run8<T>& skip, int64_t at) {
  Run8<T> y, tail;
#pragma unroll
  for (int e = 0; e < kRun; ++e) {
    const float normal = float(T(affine(e, x[e])));
    if constexpr (kTail == NormTail::none) y.put(e, normal);
    if constexpr (kTail == NormTail::relu) y.put(e, relu(normal));
    if constexpr (kTail == NormTail::relu_add) {
      y.put(e, relu(normal));
      tail.put(e, relu(normal) + skip[e]);
    }
    if constexpr (kTail == NormTail::add_relu) y.put(e, relu(float(T(normal + skip[e]))));
  }
  T* const to = kTail == NormTail::none ? args.y : args.active;
  if (to != nullptr) store_run(to + at, y);
  if constexpr (kTail == NormTail::relu_add) store_run(args.tail + at, tail);
}

template <typename T, NormTail kTail>
__global__ void __launch_bounds__(kRowThreads) normalise_kernel(RowsNormArgs<T> args) {
  constexpr bool kAdds = kTail == NormTail::relu_add || kTail == NormTail::add_relu;
  constexpr int kRows = kAdds ? 2 : kUnroll;
  const RowShare share(args.c);
  if (share.idle) return;
  const Affine affine(args, share.channel);
  for (int64_t row = share.first; row < args.rows; row += kRows * share.stride) {
    Run8<T> x[kRows], skip[kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int64_t r = row + u * share.stride, at = r * args.c + share.channel;
      if (r >= args.rows) continue;
      x[u] = load_run(args.x + at);
      if constexpr (kAdds) skip[u] = load_run(args.skip + at);
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int64_t r = row + u * share.stride;
      if (r < args.rows) {
        normalise_row<T, kTail>(args, affine, x[u], skip[u], r * args.c + share.channel);
      }
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads) normalise_pool_kernel(RowsNormArgs<T> args) {
  const RowShare share(args.c);
  if (share.idle) return;
  const Affine affine(args, share.channel);
  for (int64_t window = share.first; window < args.rows / 4; window += share.stride) {
    const Quad quad(window, args.h, args.w);
    Run8<T> x[4], pooled;
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = load_run(args.x + quad.row[i] * args.c + share.channel);
#pragma unroll
    for (int e = 0; e < kRun; ++e) {
      float most = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i].put(e, relu(affine(e, x[i][e])));
        if (i == 0 || exceeds(x[i][e], most)) most = x[i][e];
      }
      pooled.put(e, most);
    }
    if (args.active != nullptr) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        store_run(args.active + quad.row[i] * args.c + share.channel, x[i]);
      }
    }
    store_run(args.tail + window * args.c + share.channel, pooled);
  }
}

template <typename T, NormTail kTail>
cudaError_t launch_normalise(const RowsNormArgs<T>& args, int sms, cudaStream_t stream) {
  if constexpr (kTail == NormTail::relu_pool) {
    normalise_pool_kernel<T>
        <<<pass_grid(args.rows / 4, args.c, sms), kRowThreads, 0, stream>>>(args);
  } else {
    normalise_kernel<T, kTail><<<pass_grid(args.rows, args.c, sms), kRowThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

}  // namespace

size_t norm_workspace(int64_t rows, int c, int sms) {
  return size_t(row_blocks(rows, c, sms)) * 2 * size_t(c) * sizeof(float);
}

template <typename T>
cudaError_t launch_rows_norm(const RowsNormArgs<T>& args, NormTail tail, int sms,
                             cudaStream_t stream) {
  const int blocks = row_blocks(args.rows, args.c, sms);
  const int at_once = kRowThreads / std::min(args.c / kRun, kRowThreads);
  row_moments_kernel<T><<<row_grid(blocks, args.c), kRowThreads, 0, stream>>>(args.x, args.partial,
                                                                              args.rows, args.c);
  finish_moments_kernel<T><<<finish_grid(args.c), kFinishBlock, 0, stream>>>(args, blocks, at_once);
  switch (tail) {
    case NormTail::none:
      return launch_normalise<T, NormTail::none>(args, sms, stream);
    case NormTail::relu:
      return launch_normalise<T, NormTail::relu>(args, sms, stream);
    case NormTail::relu_pool:
      return launch_normalise<T, NormTail::relu_pool>(args, sms, stream);
    case NormTail::relu_add:
      return launch_normalise<T, NormTail::relu_add>(args, sms, stream);
    case NormTail::add_relu:
      return launch_normalise<T, NormTail::add_relu>(args, sms, stream);
  }
  return cudaErrorInvalidValue;
}

template cudaError_t launch_rows_norm(const RowsNormArgs<__nv_bfloat16>&, NormTail, int,
                                      cudaStream_t);
template cudaError_t launch_rows_norm(const RowsNormArgs<__half>&, NormTail, int, cudaStream_t);

}  // namespace ridgeline::cuda
