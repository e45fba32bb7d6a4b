#include <algorithm>

#include "ridgeline/cuda/norm/cluster_sum.cuh"
#include "ridgeline/cuda/norm/layer_cluster.h"

namespace ridgeline::cuda {
namespace {

constexpr int kBlocks = 8;  // per cluster: the most that every GPU supports
// The most threads per block. On an H200 with rows of 258,048 halves, the forward pass takes 71 us
// with 512 threads and 97 us with 1024, because two or three blocks share an SM; the backward pass
// takes 118 and 112 us, because one block fills it.
constexpr int kNormThreads = 512, kGradThreads = 1024;
constexpr int kLeastWidth = 16384;         // shorter rows are as fast in one block
constexpr size_t kPartBytes = 100 * 1024;  // of x or dy in a block's shared memory

template <typename T>
constexpr int kEach = 16 / int{sizeof(T)};

// The values of a block's part of a row; the last part may have fewer.
template <typename T>
__host__ __device__ int part_of(int width) {
  const int vectors = width / kEach<T>;
  return (vectors + kBlocks - 1) / kBlocks * kEach<T>;
}

// Calls f(offset within the row, offset within the part) for each of this thread's runs of kEach
// values in the block's part of its row.
template <typename T, typename F>
__device__ void for_part(int width, F f) {
  const int part = part_of<T>(width), first = int(blockIdx.x % kBlocks) * part;
  const int count = min(part, width - first);
#pragma unroll 4
  for (int j = int(threadIdx.x) * kEach<T>; j < count; j += int(blockDim.x) * kEach<T>) {
    f(first + j, j);
  }
}

template <typename T>
__global__ void __launch_bounds__(kNormThreads) layer_norm_cluster_kernel(LayerNormArgs<T> args) {
#if __CUDA_ARCH__ >= 900
  using A = Accumulated<T>;
  using Run = Numbers<T, kEach<T>>;
  extern __shared__ __align__(16) char shared[];
  __shared__ A slots[2];
  T* kept = reinterpret_cast<T*>(shared);
  const auto run_at = [](const T* from) { return *reinterpret_cast<const Run*>(from); };
  const int64_t row = blockIdx.x / kBlocks;
  const T* x = args.x + row * args.width;
  T* y = args.y + row * args.width;
  A sum = A(0), squares = A(0);
  for_part<T>(args.width, [&](int at, int place) {
    const Run run = run_at(x + at);
    *reinterpret_cast<Run*>(kept + place) = run;  // only this thread reads it again
#pragma unroll
    for (int e = 0; e < kEach<T>; ++e) sum += A(run.values[e]);
  });
  const A mean = cluster_sum<kBlocks, kNormThreads>(sum, &slots[0]) / A(args.width);
  for_part<T>(args.width, [&](int, int place) {
    const Run run = run_at(kept + place);
#pragma unroll
    for (int e = 0; e < kEach<T>; ++e) {
      squares += (A(run.values[e]) - mean) * (A(run.values[e]) - mean);
    }
  });
  const A var = cluster_sum<kBlocks, kNormThreads>(squares, &slots[1]) / A(args.width);
  const A rstd = A(1) / sqrt(var + A(args.epsilon));
  for_part<T>(args.width, [&](int at, int place) {
    Run run = run_at(kept + place);
    A value[kEach<T>], factor[kEach<T>];
#pragma unroll
    for (int e = 0; e < kEach<T>; ++e) value[e] = (A(run.values[e]) - mean) * rstd;
    if (args.gamma) {
      load_mixed(args.gamma, at, factor);
#pragma unroll
      for (int e = 0; e < kEach<T>; ++e) value[e] *= factor[e];
    }
    if (args.beta) {
      load_mixed(args.beta, at, factor);
#pragma unroll
      for (int e = 0; e < kEach<T>; ++e) value[e] += factor[e];
    }
#pragma unroll
    for (int e = 0; e < kEach<T>; ++e) run.values[e] = T(value[e]);
    *reinterpret_cast<Run*>(y + at) = run;
  });
  if (blockIdx.x % kBlocks == 0 && threadIdx.x == 0) {
    if (args.mean != nullptr) args.mean[row] = mean;
    if (args.rstd != nullptr) args.rstd[row] = rstd;
  }
  cluster_sync();  // no block exits while others may still read its sums
#endif
}

// dx
template <typename T>
__global__ void __launch_bounds__(kGradThreads)
    layer_norm_grad_cluster_kernel(LayerNormGradArgs<T> args) {
#if __CUDA_ARCH__ >= 900
  using A = Accumulated<T>;
  using Run = Numbers<T, kEach<T>>;
  extern __shared__ __align__(16) char shared[];
  __shared__ A slots[2];
  T* kept_x = reinterpret_cast<T*>(shared);
  T* kept_dy = kept_x + part_of<T>(args.width);
  const auto run_at = [](const T* from) { return *reinterpret_cast<const Run*>(from); };
  const int64_t row = blockIdx.x / kBlocks;
  const T *x = args.x + row * args.width, *dy = args.dy + row * args.width;
  const A mean = args.mean[row], rstd = args.rstd[row];
  // dy * gamma
  const auto slopes = [&](const Run& run, int at, A(&to)[kEach<T>]) {
#pragma unroll
    for (int e = 0; e < kEach<T>; ++e) to[e] = A(run.values[e]);
    if (!args.gamma) return;
    A factor[kEach<T>];
    load_mixed(args.gamma, at, factor);
#pragma unroll
    for (int e = 0; e < kEach<T>; ++e) to[e] *= factor[e];
  };
  A sum = A(0), along = A(0);
  for_part<T>(args.width, [&](int at, int place) {
    const Run value = run_at(x + at), change = run_at(dy + at);
    *reinterpret_cast<Run*>(kept_x + place) = value;
    *reinterpret_cast<Run*>(kept_dy + place) = change;
    A g[kEach<T>];
    slopes(change, at, g);
#pragma unroll
    for (int e = 0; e < kEach<T>; ++e) {
      sum += g[e];
      along += g[e] * ((A(value.values[e]) - mean) * rstd);
    }
  });
  sum = cluster_sum<kBlocks, kGradThreads>(sum, &slots[0]) / A(args.width);
  along = cluster_sum<kBlocks, kGradThreads>(along, &slots[1]) / A(args.width);
  for_part<T>(args.width, [&](int at, int place) {
    const Run value = run_at(kept_x + place), change = run_at(kept_dy + place);
    Run dx;
    A g[kEach<T>];
    slopes(change, at, g);
#pragma unroll
    for (int e = 0; e < kEach<T>; ++e) {
      dx.values[e] = T(rstd * (g[e] - sum - (A(value.values[e]) - mean) * rstd * along));
    }
    *reinterpret_cast<Run*>(args.dx + row * args.width + at) = dx;
  });
  cluster_sync();  // no block exits while others may still read its sums
#endif
}

// dgamma and dbeta: a thread takes a few columns of every kShares-th row; the shares of a block are
// added in order.
template <typename T>
constexpr int kColumns = sizeof(T) == 8 ? 2 : 4;
constexpr int kShares = 4, kGroups = 64;  // threads of a block, vertically and horizontally

template <typename T>
__global__ void __launch_bounds__(kShares* kGroups)
    layer_norm_grad_columns_kernel(LayerNormGradArgs<T> args) {
  using A = Accumulated<T>;
  constexpr int kEachColumn = kColumns<T>;
  using Run = Numbers<T, kEachColumn>;
  __shared__ A sums[2][kShares][kGroups * kEachColumn];
  const int64_t first = (int64_t(blockIdx.x) * kGroups + threadIdx.x) * kEachColumn;
  const bool inside = first < args.width;
  A sum[kEachColumn] = {}, along[kEachColumn] = {};
#pragma unroll 4
  for (int64_t row = inside ? threadIdx.y : args.rows; row < args.rows; row += kShares) {
    const int64_t at = row * args.width + first;
    const Run x = *reinterpret_cast<const Run*>(args.x + at);
    const Run dy = *reinterpret_cast<const Run*>(args.dy + at);
    const A mean = args.mean[row], rstd = args.rstd[row];
#pragma unroll
    for (int e = 0; e < kEachColumn; ++e) {
      sum[e] += A(dy.values[e]);
      along[e] += A(dy.values[e]) * ((A(x.values[e]) - mean) * rstd);
    }
  }
#pragma unroll
  for (int e = 0; e < kEachColumn; ++e) {
    sums[0][threadIdx.y][threadIdx.x * kEachColumn + e] = sum[e];
    sums[1][threadIdx.y][threadIdx.x * kEachColumn + e] = along[e];
  }
  __syncthreads();
  const int64_t start = int64_t(blockIdx.x) * kGroups * kEachColumn;
  const int count = int(min(int64_t(kGroups * kEachColumn), args.width - start));
  for (int j = int(threadIdx.y * kGroups + threadIdx.x); j < count; j += kShares * kGroups) {
    A level = A(0), tilt = A(0);
    for (int share = 0; share < kShares; ++share) {
      level += sums[0][share][j];
      tilt += sums[1][share][j];
    }
    if (args.dbeta) args.dbeta.put(start + j, level);
    if (args.dgamma) args.dgamma.put(start + j, tilt);
  }
}

// The threads for a part: whole warps, with at least two runs of 16 bytes each.
template <typename T>
int threads_for(int width, int most) {
  const int runs = part_of<T>(width) / kEach<T>;
  return std::clamp((runs / 2 + 31) / 32 * 32, 32, most);
}

template <typename Args>
cudaError_t launch(void (*kernel)(Args), int threads, size_t shared, const Args& args,
                   cudaStream_t stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared));
  if (error != cudaSuccess) return error;
  return launch_clusters<kBlocks>(kernel, args.rows, threads, shared, args, stream);
}

}  // namespace

std::string refuse_layer_cluster(int64_t rows, int64_t width, size_t bytes) {
  const int64_t each = 16 / int64_t(bytes);
  if (width < kLeastWidth) return "is for long rows";
  if (width % each != 0) return "takes rows of whole 16 bytes";
  if ((width / each + kBlocks - 1) / kBlocks * 16 > int64_t(kPartBytes)) {
    return "a row does not fit the shared memory of a cluster";
  }
  if (rows > (int64_t{1} << 27)) return "has too many rows for one launch";
  return {};
}

template <typename T>
cudaError_t launch_layer_norm_cluster(const LayerNormArgs<T>& args, cudaStream_t stream) {
  const size_t part = size_t(part_of<T>(args.width)) * sizeof(T);
  return launch(layer_norm_cluster_kernel<T>, threads_for<T>(args.width, kNormThreads), part, args,
                stream);
}

template <typename T>
cudaError_t launch_layer_norm_grad_cluster(const LayerNormGradArgs<T>& args, cudaStream_t stream) {
  if (args.dx != nullptr) {
    const size_t part = size_t(part_of<T>(args.width)) * sizeof(T);
    const cudaError_t error =
        launch(layer_norm_grad_cluster_kernel<T>, threads_for<T>(args.width, kGradThreads),
               2 * part, args, stream);
    if (error != cudaSuccess) return error;
  }
  if (args.dgamma || args.dbeta) {
    const int64_t columns = kGroups * kColumns<T>;
    layer_norm_grad_columns_kernel<T>
        <<<unsigned((args.width + columns - 1) / columns), dim3(kGroups, kShares), 0, stream>>>(
            args);
  }
  return cudaGetLastError();
}

#define RIDGELINE_LAUNCH_LAYER_NORM(T)                                                   \
  template cudaError_t launch_layer_norm_cluster(const LayerNormArgs<T>&, cudaStream_t); \
  template cudaError_t launch_layer_norm_grad_cluster(const LayerNormGradArgs<T>&, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_LAYER_NORM)

}  // namespace ridgeline::cuda
