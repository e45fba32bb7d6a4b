#include "ridgeline/cuda/channels_last/batch_norm.h"
#include "ridgeline/cuda/channels_last/norm_rows.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kMomentBlocks = 4;  // resident blocks per SM
// The resident blocks per SM of the pass that applies the statistics, as its registers permit.
constexpr int apply_blocks(NormTail tail) {
  return tail == NormTail::relu_pool || tail == NormTail::relu_add ? 2 : 3;
}
static_assert(kMomentBlocks <= kMaxBlocksPerSm);

// The number of rows that a thread slot takes when it starts at row `first` and advances by
// `stride`, and the number that a block of `at_once` slots takes. The division is made once.
struct RowCounts {
  int64_t whole, rest;

  __device__ RowCounts(int64_t rows, int64_t stride) : whole(rows / stride), rest(rows % stride) {}
  // The number of a block's slots that take one row more than `whole`.
  __device__ int longer_slots(int64_t block, int at_once) const {
    const int64_t left = rest - block * at_once;
    return int(left < 0 ? 0 : left > at_once ? at_once : left);
  }
  __device__ int64_t of_block(int64_t block, int at_once) const {
    return whole * at_once + longer_slots(block, at_once);
  }
};

// Combines the means and sums of squared deviations of groups of values into those of all values.
// It takes squares around the mean of the first group, which is close to the mean when the mean is
// large.
struct GroupMoments {
  float origin, count = 0, sum = 0, square = 0;

  __device__ explicit GroupMoments(float first_mean) : origin(first_mean) {}
  __device__ void add(float n, float mean, float spread) {
    const float off = mean - origin;
    count += n;
    sum += n * off;
    square += spread + n * off * off;
  }
  __device__ float mean() const { return origin + sum / count; }
  __device__ float spread() const { return square - sum * (sum / count); }
};

// Combines each thread's mean and sum of squared deviations into those of the block. A thread takes
// its squares around its first value, which is close to the mean when the mean is large.
template <typename T>
__global__ void __launch_bounds__(kRowThreads, kMomentBlocks)
    row_moments_kernel(const T* __restrict__ x, float* __restrict__ partial, int64_t rows, int c) {
  __shared__ float means[kRowThreads * kRun], squares[kRowThreads * kRun];
  const RowShare share(c);
  const RowCounts counts(rows, share.stride);
  if (!share.idle && share.first < rows) {
    float origin[kRun], sum[kRun] = {}, square[kRun] = {};
    const Run8<T> first = load_run(x + share.first * c + share.channel);
#pragma unroll
    for (int e = 0; e < kRun; ++e) origin[e] = first[e];
    for (int64_t row = share.first; row < rows; row += kUnroll * share.stride) {
      Run8<T> run[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        // Past the end, a thread loads its first row again, which adds zero.
        const int64_t r = row + u * share.stride;
        run[u] = load_run(x + (r < rows ? r : share.first) * c + share.channel);
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
    const auto count = float(counts.whole + (share.first < counts.rest ? 1 : 0));
#pragma unroll
    for (int e = 0; e < kRun; ++e) {
      const float mean = sum[e] / count;
      means[int(threadIdx.x) * kRun + e] = origin[e] + mean;
      squares[int(threadIdx.x) * kRun + e] = square[e] - sum[e] * mean;
    }
  }
  __syncthreads();
  const int width = share.lanes * kRun, longer = counts.longer_slots(blockIdx.x, share.at_once);
  const int slots = counts.whole > 0 ? share.at_once : longer;  // that have rows
  for (int k = int(threadIdx.x); k < width; k += kRowThreads) {
    GroupMoments block(means[k]);
#pragma unroll 4
    for (int r = 0; r < slots; ++r) {
      const auto n = float(counts.whole + (r < longer ? 1 : 0));
      block.add(n, means[r * width + k], squares[r * width + k]);
    }
    const int channel = int(blockIdx.y) * kRowThreads * kRun + k;
    float* to = partial + int64_t(blockIdx.x) * 2 * c;
    to[channel] = block.mean();
    to[c + channel] = block.spread();
  }
}

template <typename T>
__global__ void __launch_bounds__(kFinishChannels* kFinishParts)
    finish_moments_kernel(RowsNormArgs<T> args, int blocks, int at_once) {
  const int channel = finish_channel();
  const RowCounts counts(args.rows, int64_t(blocks) * at_once);
  GroupMoments all(args.partial[channel]);
  each_block_sum(args.partial, args.c, blocks, [&](int block, float mean, float spread) {
    all.add(float(counts.of_block(block, at_once)), mean, spread);
  });
  all.count = float(args.rows);
  all.sum = finish_sum(all.sum);
  all.square = finish_sum(all.square);
  if (threadIdx.y != 0) return;
  const float count = all.count, mean = all.mean(), var = all.spread() / count;
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

// The passes that apply the statistics walk the rows backwards: the L2 cache still holds the end of
// the map, which the summing pass read last.
template <typename T, NormTail kTail>
__global__ void __launch_bounds__(kRowThreads, apply_blocks(kTail))
    normalise_kernel(RowsNormArgs<T> args) {
  constexpr bool kAdds = kTail == NormTail::relu_add || kTail == NormTail::add_relu;
  constexpr int kRows = kTail == NormTail::add_relu ? 2 : kUnroll;
  const RowShare share(args.c);
  if (share.idle) return;
  const Affine affine(args, share.channel);
  const int64_t step = share.stride * args.c;
  int64_t last = (args.rows - 1 - share.first) * args.c + share.channel;
  for (; last >= 0; last -= kRows * step) {
    Run8<T> x[kRows], skip[kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int64_t at = last - u * step;
      if (at < 0) continue;
      x[u] = load_last_run(args.x + at);
      if constexpr (kAdds) skip[u] = load_run(args.skip + at);
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int64_t at = last - u * step;
      if (at >= 0) normalise_row<T, kTail>(args, affine, x[u], skip[u], at);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads, apply_blocks(NormTail::relu_pool))
    normalise_pool_kernel(RowsNormArgs<T> args) {
  const RowShare share(args.c);
  if (share.idle) return;
  const Affine affine(args, share.channel);
  for (int64_t window = args.rows / 4 - 1 - share.first; window >= 0; window -= share.stride) {
    const Quad quad(window, args.w);
    Run8<T> x[4], pooled;
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = load_last_run(args.x + quad.row(i) * args.c + share.channel);
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
        store_run(args.active + quad.row(i) * args.c + share.channel, x[i]);
      }
    }
    store_run(args.tail + window * args.c + share.channel, pooled);
  }
}

template <typename T, NormTail kTail>
cudaError_t launch_normalise(const RowsNormArgs<T>& args, int sms, cudaStream_t stream) {
  const int64_t steps = kTail == NormTail::relu_pool ? args.rows / 4 : args.rows;
  const dim3 grid = row_grid(row_blocks(steps, args.c, sms, apply_blocks(kTail)), args.c);
  if constexpr (kTail == NormTail::relu_pool) {
    normalise_pool_kernel<T><<<grid, kRowThreads, 0, stream>>>(args);
  } else {
    normalise_kernel<T, kTail><<<grid, kRowThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

}  // namespace

size_t norm_workspace(int64_t rows, int c, int sms) {
  return size_t(row_blocks(rows, c, sms, kMaxBlocksPerSm)) * 2 * size_t(c) * sizeof(float);
}

template <typename T>
cudaError_t launch_rows_norm(const RowsNormArgs<T>& args, NormTail tail, int sms,
                             cudaStream_t stream) {
  const int blocks = row_blocks(args.rows, args.c, sms, kMomentBlocks);
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

#define INSTANTIATE(T) \
  template cudaError_t launch_rows_norm(const RowsNormArgs<T>&, NormTail, int, cudaStream_t);
INSTANTIATE(__nv_bfloat16)
INSTANTIATE(__half)
#undef INSTANTIATE

}  // namespace ridgeline::cuda
