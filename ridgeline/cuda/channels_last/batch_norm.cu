#include <algorithm>

#include "ridgeline/cuda/channels_last/batch_norm.h"
#include "ridgeline/cuda/channels_last/run8.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kUnroll = 4;       // loads in flight per thread
constexpr int kBlocksPerSm = 4;  // blocks of the summing passes
constexpr int kFinishChannels = 32, kFinishParts = 8;

// The number of blocks along the rows: enough to fill the GPU, but few enough that adding their
// sums stays cheap.
int row_blocks(int64_t rows, int c, int sms) {
  const int lanes = std::min(c / kRun, kRowThreads), at_once = kRowThreads / lanes;
  const int64_t needed = (rows + at_once - 1) / at_once;
  return int(std::clamp<int64_t>(needed / kUnroll, 1, int64_t{sms} * kBlocksPerSm));
}
dim3 row_grid(int blocks, int c) {
  return {unsigned(blocks), unsigned((c / kRun + kRowThreads - 1) / kRowThreads)};
}

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

// Sums over the kFinishParts threads of each channel, in a block of kFinishChannels channels.
__device__ float finish_sum(float value) {
  __shared__ float parts[kFinishParts][kFinishChannels];
  __syncthreads();  // the previous sum has been read
  parts[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  float sum = 0;
  for (int part = 0; part < kFinishParts; ++part) sum += parts[part][threadIdx.x];
  return sum;
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

// The four pixels of a 2 x 2 window, as rows of channels.
struct Quad {
  int64_t row[4];

  __device__ Quad(int64_t window, int h, int w) {
    const int out_w = w / 2, out_h = h / 2;
    const int64_t line = window / out_w, image = line / out_h;
    const int p = int(line % out_h), q = int(window % out_w);
    row[0] = (image * h + 2 * p) * w + 2 * q;
    row[1] = row[0] + 1;
    row[2] = row[0] + w;
    row[3] = row[2] + 1;
  }
};

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

dim3 finish_grid(int c) { return {unsigned((c + kFinishChannels - 1) / kFinishChannels)}; }
constexpr dim3 kFinishBlock{kFinishChannels, kFinishParts};

// The grid of a pass that sums nothing.
dim3 pass_grid(int64_t rows, int c, int sms) { return row_grid(row_blocks(rows, c, 2 * sms), c); }

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

#define INSTANTIATE(T)                                                                        \
  template cudaError_t launch_rows_norm(const RowsNormArgs<T>&, NormTail, int, cudaStream_t); \
  template cudaError_t launch_rows_norm_grad(const RowsNormGradArgs<T>&, NormHead, int,       \
                                             cudaStream_t);                                   \
  template cudaError_t launch_row_sums(const T*, MixedOut<T>, int64_t, int, float*, int,      \
                                       cudaStream_t);
INSTANTIATE(__nv_bfloat16)
INSTANTIATE(__half)
#undef INSTANTIATE

}  // namespace ridgeline::cuda
