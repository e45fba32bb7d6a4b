#include <algorithm>

#include "ridgeline/cuda/channels_last/image_ops.h"
#include "ridgeline/cuda/channels_last/run8.cuh"
#include "ridgeline/cuda/plain/index.cuh"

namespace ridgeline::cuda {
namespace {

// The window of one thread's run of channels.
struct Tile {
  int64_t out, corner;  // offsets of its run in y, and of the run of its first pixel in x

  __device__ Tile(const TilePool& pool, int64_t i) {
    const int runs = pool.c / kRun, out_w = pool.w / pool.right, out_h = pool.h / pool.down;
    const int64_t window = i / runs, line = window / out_w, image = line / out_h;
    const int channel = int(i % runs) * kRun;
    out = window * pool.c + channel;
    const int64_t row = image * pool.h + line % out_h * pool.down;
    corner = (row * pool.w + window % out_w * pool.right) * pool.c + channel;
  }
  __device__ int64_t at(const TilePool& pool, int u, int v) const {
    return corner + (int64_t(u) * pool.w + v) * pool.c;
  }
};

template <typename T>
__global__ void rows_pool_kernel(TilePool pool, const T* x, T* y) {
  const int64_t count = pool.windows() * (pool.c / kRun);
  for (int64_t i = first_index(); i < count; i += index_stride()) {
    const Tile tile(pool, i);
    Run8<T> most = load_run(x + tile.corner);
    for (int u = 0; u < pool.down; ++u) {
      for (int v = u == 0 ? 1 : 0; v < pool.right; ++v) {
        const Run8<T> run = load_run(x + tile.at(pool, u, v));
#pragma unroll
        for (int e = 0; e < kRun; ++e) {
          if (exceeds(run[e], most[e])) most.values[e] = run.values[e];
        }
      }
    }
    store_run(y + tile.out, most);
  }
}

template <typename T>
__global__ void rows_pool_grad_kernel(TilePool pool, const T* x, const T* dy, T* dx) {
  const int64_t count = pool.windows() * (pool.c / kRun);
  for (int64_t i = first_index(); i < count; i += index_stride()) {
    const Tile tile(pool, i);
    Run8<T> most = load_run(x + tile.corner);
    int best[kRun] = {};
    for (int u = 0; u < pool.down; ++u) {
      for (int v = u == 0 ? 1 : 0; v < pool.right; ++v) {
        const Run8<T> run = load_run(x + tile.at(pool, u, v));
#pragma unroll
        for (int e = 0; e < kRun; ++e) {
          if (!exceeds(run[e], most[e])) continue;
          most.values[e] = run.values[e];
          best[e] = u * pool.right + v;
        }
      }
    }
    const Run8<T> gradient = load_run(dy + tile.out);
    for (int u = 0; u < pool.down; ++u) {
      for (int v = 0; v < pool.right; ++v) {
        Run8<T> run;
#pragma unroll
        for (int e = 0; e < kRun; ++e) {
          run.put(e, best[e] == u * pool.right + v ? gradient[e] : 0.0f);
        }
        store_run(dx + tile.at(pool, u, v), run);
      }
    }
  }
}

template <typename T>
__global__ void run_sum_kernel(const __grid_constant__ RunSumArgs<T> args) {
  const float scale = float(args.scale);
  for (int64_t i = first_index(); i < args.count / kRun; i += index_stride()) {
    const Run8<T> first = load_run(args.xs[0] + i * kRun);
    float sum[kRun];
#pragma unroll
    for (int e = 0; e < kRun; ++e) sum[e] = first[e];
    for (int x = 1; x < args.inputs; ++x) {
      const Run8<T> run = load_run(args.xs[x] + i * kRun);
#pragma unroll
      for (int e = 0; e < kRun; ++e) sum[e] += run[e];
    }
    Run8<T> y, active;
#pragma unroll
    for (int e = 0; e < kRun; ++e) {
      y.put(e, sum[e] * scale);
      active.put(e, relu(y[e]));
    }
    if (args.y != nullptr) store_run(args.y + i * kRun, y);
    if (args.active != nullptr) store_run(args.active + i * kRun, active);
  }
}

template <typename T>
__global__ void run_relu_kernel(const T* x, T* y, int64_t count) {
  for (int64_t i = first_index(); i < count / kRun; i += index_stride()) {
    Run8<T> run = load_run(x + i * kRun);
#pragma unroll
    for (int e = 0; e < kRun; ++e) run.put(e, relu(run[e]));
    store_run(y + i * kRun, run);
  }
}

template <typename T>
__global__ void run_relu_grad_kernel(const T* y, const T* dy, T* dx, int64_t count) {
  for (int64_t i = first_index(); i < count / kRun; i += index_stride()) {
    const Run8<T> kept = load_run(y + i * kRun);
    Run8<T> run = load_run(dy + i * kRun);
#pragma unroll
    for (int e = 0; e < kRun; ++e) run.put(e, kept[e] > 0 ? run[e] : 0.0f);
    store_run(dx + i * kRun, run);
  }
}

template <typename T>
__global__ void row_taps_kernel(RowTaps taps, const T* x, T* columns) {
  const int runs = taps.c / kRun;
  const auto count = unsigned(taps.n * taps.out_h * taps.out_w * taps.down * taps.right * runs);
  for (auto i = unsigned(first_index()); i < count; i += unsigned(index_stride())) {
    const unsigned channel = i % unsigned(runs) * kRun;
    unsigned at = i / unsigned(runs);
    const int v = int(at % unsigned(taps.right));
    at /= unsigned(taps.right);
    const int u = int(at % unsigned(taps.down));
    at /= unsigned(taps.down);
    const int q = int(at % unsigned(taps.out_w));
    at /= unsigned(taps.out_w);
    const int p = int(at % unsigned(taps.out_h));
    const auto image = int64_t(at / unsigned(taps.out_h));
    const int row = p * taps.stride_h - taps.pad_h + u * taps.dilation_h;
    const int column = q * taps.stride_w - taps.pad_w + v * taps.dilation_w;
    Run8<T> run{};
    if (row >= 0 && row < taps.h && column >= 0 && column < taps.w) {
      run = load_run(x + ((image * taps.h + row) * taps.w + column) * taps.c + channel);
    }
    store_run(columns + int64_t(i) * kRun, run);
  }
}

constexpr int kFilterNumbers = 4096;  // values of a filter that a block keeps in shared memory

// A block takes `part` channels of one filter, so that it reads and writes contiguous runs. kLast:
// converts [c, taps] to [taps, c].
template <typename T, bool kLast>
__global__ void filters_kernel(const T* from, T* to, int c, int taps, int part) {
  __shared__ T numbers[kFilterNumbers];
  const int begin = int(blockIdx.y) * part, width = min(part, c - begin);
  const int64_t filter = int64_t(blockIdx.x) * c * taps;
  const T* in = from + filter + (kLast ? int64_t(begin) * taps : begin);
  T* out = to + filter + (kLast ? begin : int64_t(begin) * taps);
  for (int i = int(threadIdx.x); i < width * taps; i += int(blockDim.x)) {
    numbers[i] = kLast ? in[i] : in[int64_t(i / width) * c + i % width];
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < width * taps; i += int(blockDim.x)) {
    if (kLast) {
      out[int64_t(i / width) * c + i % width] = numbers[i % width * taps + i / width];
    } else {
      out[i] = numbers[i % taps * width + i / taps];
    }
  }
}

template <typename T, bool kLast>
cudaError_t launch_filters(const T* from, T* to, int k, int c, int taps, cudaStream_t stream) {
  const int part = std::min(c, kFilterNumbers / taps);
  const dim3 grid(unsigned(k), unsigned((c + part - 1) / part));
  filters_kernel<T, kLast><<<grid, kThreads, 0, stream>>>(from, to, c, taps, part);
  return cudaGetLastError();
}

}  // namespace

template <typename T>
cudaError_t launch_rows_pool(const TilePool& pool, const T* x, T* y, cudaStream_t stream) {
  rows_pool_kernel<T>
      <<<blocks_for(pool.windows() * (pool.c / kRun)), kThreads, 0, stream>>>(pool, x, y);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_rows_pool_grad(const TilePool& pool, const T* x, const T* dy, T* dx,
                                  cudaStream_t stream) {
  rows_pool_grad_kernel<T>
      <<<blocks_for(pool.windows() * (pool.c / kRun)), kThreads, 0, stream>>>(pool, x, dy, dx);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_run_sum(const RunSumArgs<T>& args, cudaStream_t stream) {
  run_sum_kernel<T><<<blocks_for(args.count / kRun), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_run_relu(const T* x, T* y, int64_t count, cudaStream_t stream) {
  run_relu_kernel<T><<<blocks_for(count / kRun), kThreads, 0, stream>>>(x, y, count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_run_relu_grad(const T* y, const T* dy, T* dx, int64_t count,
                                 cudaStream_t stream) {
  run_relu_grad_kernel<T><<<blocks_for(count / kRun), kThreads, 0, stream>>>(y, dy, dx, count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_row_taps(const RowTaps& taps, const T* x, T* columns, cudaStream_t stream) {
  const int64_t count = taps.n * taps.out_h * taps.out_w * taps.down * taps.right * (taps.c / kRun);
  row_taps_kernel<T><<<blocks_for(count), kThreads, 0, stream>>>(taps, x, columns);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_filters_last(const T* from, T* to, int k, int c, int taps, cudaStream_t stream) {
  return launch_filters<T, true>(from, to, k, c, taps, stream);
}
template <typename T>
cudaError_t launch_filters_first(const T* from, T* to, int k, int c, int taps,
                                 cudaStream_t stream) {
  return launch_filters<T, false>(from, to, k, c, taps, stream);
}

#define INSTANTIATE(T)                                                                      \
  template cudaError_t launch_rows_pool(const TilePool&, const T*, T*, cudaStream_t);       \
  template cudaError_t launch_rows_pool_grad(const TilePool&, const T*, const T*, T*,       \
                                             cudaStream_t);                                 \
  template cudaError_t launch_run_sum(const RunSumArgs<T>&, cudaStream_t);                  \
  template cudaError_t launch_run_relu(const T*, T*, int64_t, cudaStream_t);                \
  template cudaError_t launch_run_relu_grad(const T*, const T*, T*, int64_t, cudaStream_t); \
  template cudaError_t launch_row_taps(const RowTaps&, const T*, T*, cudaStream_t);
INSTANTIATE(__nv_bfloat16)
INSTANTIATE(__half)
#undef INSTANTIATE
#define INSTANTIATE(T)                                                                 \
  template cudaError_t launch_filters_last(const T*, T*, int, int, int, cudaStream_t); \
  template cudaError_t launch_filters_first(const T*, T*, int, int, int, cudaStream_t);
INSTANTIATE(__nv_bfloat16)
INSTANTIATE(__half)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace ridgeline::cuda
