#include <algorithm>

#include "ridgeline/cuda/plain/one_hot_conv.h"

namespace ridgeline::cuda {
namespace {

constexpr int kBlockThreads = 256;
constexpr int kFilterBytes = 40 * 1024;  // for the filters that a block keeps in shared memory

// One block per sample and `channels` of its filters, which it keeps in shared memory if they fit
// (kStaged); threads run along the text.
template <typename T, bool kStaged>
__global__ void one_hot_conv1d_forward_kernel(OneHotGeometry g, const int32_t* token, const T* w,
                                              MixedIn<T> b, T* y, int channels) {
  using A = Accumulated<T>;
  extern __shared__ __align__(16) char shared[];
  const int first = int(blockIdx.y) * channels, count = min(channels, g.out - first);
  const int64_t sample = blockIdx.x;
  const T* filters = w + int64_t(first) * g.filter();
  if constexpr (kStaged) {
    T* staged = reinterpret_cast<T*>(shared);
    for (int j = threadIdx.x; j < count * g.filter(); j += blockDim.x) staged[j] = filters[j];
    __syncthreads();
    filters = staged;
  }
  const int32_t* text = token + sample * g.length;
  T* to = y + (sample * g.out + first) * g.steps();
  for (int t = threadIdx.x; t < g.steps(); t += blockDim.x) {
    for (int c = 0; c < count; ++c) {
      A sum = b ? b[first + c] : A(0);
      for (int u = 0; u < g.kernel; ++u) {
        const int code = text[t + u];
        if (code < g.symbols) sum += A(filters[c * g.filter() + code * g.kernel + u]);
      }
      to[int64_t(c) * g.steps() + t] = T(sum);
    }
  }
}

// The gradient takes two launches, with a fixed order of additions. In the first, a block is one
// warp whose lanes are 32 channels; it adds its share of the samples into a table of its own in
// shared memory, [filter][32 channels]. The second adds the shares.
constexpr int kLanes = 32;
constexpr int kTileSteps = 32;

template <typename T>
constexpr size_t grad_shared(int filter) {
  return (size_t(filter) * kLanes + size_t(kTileSteps) * (kLanes + 1)) * sizeof(Accumulated<T>);
}

template <typename T>
__global__ void one_hot_conv1d_grad_w_shares_kernel(OneHotGeometry g, const int32_t* token,
                                                    const T* dy, Accumulated<T>* shares) {
  using A = Accumulated<T>;
  extern __shared__ __align__(16) char shared[];
  A* table = reinterpret_cast<A*>(shared);
  A* tile = table + g.filter() * kLanes;  // [channel][step], padded
  const int lane = threadIdx.x, first = int(blockIdx.x) * kLanes;
  const int share = blockIdx.y, share_count = gridDim.y;
  for (int j = 0; j < g.filter(); ++j) table[j * kLanes + lane] = A(0);
  A bias = A(0);
  for (int64_t i = share; i < g.n; i += share_count) {
    const int32_t* text = token + i * g.length;
    for (int t0 = 0; t0 < g.steps(); t0 += kTileSteps) {
      const int count = min(kTileSteps, g.steps() - t0);
      __syncwarp();
      for (int c = 0; c < kLanes; ++c) {
        const bool inside = first + c < g.out && lane < count;
        tile[c * (kLanes + 1) + lane] =
            inside ? A(dy[(i * g.out + first + c) * g.steps() + t0 + lane]) : A(0);
      }
      __syncwarp();
      for (int t = 0; t < count; ++t) {
        const A value = tile[lane * (kLanes + 1) + t];
        bias += value;
        for (int u = 0; u < g.kernel; ++u) {
          const int code = text[t0 + t + u];
          if (code < g.symbols) table[(code * g.kernel + u) * kLanes + lane] += value;
        }
      }
    }
  }
  if (first + lane >= g.out) return;
  // shares[share][channel][filter + 1], the bias last
  A* to = shares + (int64_t(share) * g.out + first + lane) * (g.filter() + 1);
  for (int j = 0; j < g.filter(); ++j) to[j] = table[j * kLanes + lane];
  to[g.filter()] = bias;
}

template <typename T>
__global__ void one_hot_conv1d_grad_w_sum_kernel(OneHotGeometry g, const Accumulated<T>* shares,
                                                 int count, MixedOut<T> dw, MixedOut<T> db) {
  using A = Accumulated<T>;
  const int row = g.filter() + 1;
  const int64_t all = int64_t(g.out) * row;
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= all) return;
  A sum = A(0);
  for (int s = 0; s < count; ++s) sum += shares[s * all + at];
  const int64_t o = at / row;
  const int j = int(at % row);
  if (j < g.filter()) {
    dw.put(o * g.filter() + j, sum);
  } else if (db) {
    db.put(o, sum);
  }
}

// For filters whose table does not fit: one thread per weight, which reads all of its channel.
template <typename T>
__global__ void one_hot_conv1d_grad_w_scan_kernel(OneHotGeometry g, const int32_t* token,
                                                  const T* dy, MixedOut<T> dw, MixedOut<T> db) {
  using A = Accumulated<T>;
  const int row = g.filter() + 1;
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= int64_t(g.out) * row) return;
  const int64_t o = at / row;
  const int j = int(at % row), symbol = j / g.kernel, u = j % g.kernel;
  A sum = A(0);
  for (int64_t i = 0; i < g.n; ++i) {
    for (int t = 0; t < g.steps(); ++t) {
      if (j < g.filter() && token[i * g.length + t + u] != symbol) continue;
      sum += A(dy[(i * g.out + o) * g.steps() + t]);
    }
  }
  if (j < g.filter()) {
    dw.put(o * g.filter() + j, sum);
  } else if (db) {
    db.put(o, sum);
  }
}

constexpr size_t kMostShared = 200 * 1024;
constexpr int kMostShares = 48;  // times 8 blocks of channels: three blocks per SM of an H200

template <typename T>
bool table_fits(const OneHotGeometry& g) {
  int device = 0, most = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
          cudaSuccess) {
    return false;
  }
  return grad_shared<T>(g.filter()) <= std::min(kMostShared, size_t(most));
}

unsigned blocks_of(int64_t count, int threads) { return unsigned((count + threads - 1) / threads); }

}  // namespace

template <typename T>
cudaError_t launch_one_hot_conv(const OneHotGeometry& g, const int32_t* token, const T* w,
                                MixedIn<T> b, T* y, cudaStream_t stream) {
  const int fit = int(kFilterBytes / (size_t(g.filter()) * sizeof(T)));
  const int channels = std::clamp(fit, 1, 16);
  const dim3 grid(unsigned(g.n), blocks_of(g.out, channels));
  if (fit > 0) {
    const size_t bytes = size_t(channels) * size_t(g.filter()) * sizeof(T);
    one_hot_conv1d_forward_kernel<T, true>
        <<<grid, kBlockThreads, bytes, stream>>>(g, token, w, b, y, channels);
  } else {
    one_hot_conv1d_forward_kernel<T, false>
        <<<grid, kBlockThreads, 0, stream>>>(g, token, w, b, y, channels);
  }
  return cudaGetLastError();
}

size_t one_hot_grad_workspace(const OneHotGeometry& g, size_t accumulated) {
  const size_t shares = size_t(std::min(g.n, kMostShares));
  return shares * size_t(g.out) * size_t(g.filter() + 1) * accumulated;
}

template <typename T>
cudaError_t launch_one_hot_conv_grad_w(const OneHotGeometry& g, const int32_t* token, const T* dy,
                                       MixedOut<T> dw, MixedOut<T> db, void* workspace,
                                       cudaStream_t stream) {
  const unsigned weights = blocks_of(int64_t(g.out) * (g.filter() + 1), kBlockThreads);
  if (!table_fits<T>(g)) {
    one_hot_conv1d_grad_w_scan_kernel<T>
        <<<weights, kBlockThreads, 0, stream>>>(g, token, dy, dw, db);
    return cudaGetLastError();
  }
  const size_t bytes = grad_shared<T>(g.filter());
  const auto kernel = one_hot_conv1d_grad_w_shares_kernel<T>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (error != cudaSuccess) return error;
  const int count = std::min(g.n, kMostShares);
  auto* shares = static_cast<Accumulated<T>*>(workspace);
  kernel<<<dim3(blocks_of(g.out, kLanes), unsigned(count)), kLanes, bytes, stream>>>(g, token, dy,
                                                                                     shares);
  return launch_one_hot_grad_sum<T>(g, shares, count, dw, db, stream);
}

template <typename T>
cudaError_t launch_one_hot_grad_sum(const OneHotGeometry& g, const Accumulated<T>* shares,
                                    int count, MixedOut<T> dw, MixedOut<T> db,
                                    cudaStream_t stream) {
  one_hot_conv1d_grad_w_sum_kernel<T>
      <<<blocks_of(int64_t(g.out) * (g.filter() + 1), kBlockThreads), kBlockThreads, 0, stream>>>(
          g, shares, count, dw, db);
  return cudaGetLastError();
}

#define RIDGELINE_LAUNCH_ONE_HOT(T)                                                                \
  template cudaError_t launch_one_hot_conv(const OneHotGeometry&, const int32_t*, const T*,        \
                                           MixedIn<T>, T*, cudaStream_t);                          \
  template cudaError_t launch_one_hot_conv_grad_w(const OneHotGeometry&, const int32_t*, const T*, \
                                                  MixedOut<T>, MixedOut<T>, void*, cudaStream_t);  \
  template cudaError_t launch_one_hot_grad_sum(const OneHotGeometry&, const Accumulated<T>*, int,  \
                                               MixedOut<T>, MixedOut<T>, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_ONE_HOT)

}  // namespace ridgeline::cuda
