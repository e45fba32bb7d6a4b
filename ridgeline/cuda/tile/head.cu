#include <algorithm>
#include <cmath>

#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/device/mbarrier.cuh"
#include "ridgeline/cuda/gemm/launch.h"
#include "ridgeline/cuda/tile/head.h"
#include "ridgeline/cuda/tile/head_dz.cuh"
#include "ridgeline/cuda/tile/head_sums.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kWarpRows = 2;  // rows per warp at once: each read of w serves them all
constexpr int kMostRows = kWarps * kWarpRows;

// Shared memory: dl [rows, kClasses rounded up to fours], h [rows, pitch], w [kClasses, pitch].
// Padding past the classes and past a row's hidden units is zero, so that loops need no bounds
// checks.
__host__ __device__ constexpr int rounded_up(int count) { return (count + 3) / 4 * 4; }

template <typename T>
struct alignas(16) Four {
  T values[4];
};
template <typename T>
__device__ Four<T> four(const T* p) {
  return *reinterpret_cast<const Four<T>*>(p);
}

template <typename T>
__device__ T warp_sum(T x) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) x += __shfl_xor_sync(~0u, x, apart);
  return x;
}
template <typename T>
__device__ T warp_most(T x) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) x = max(x, __shfl_xor_sync(~0u, x, apart));
  return x;
}

// Copies [rows, columns] to rows of `pitch`, with zeros from there up to `total` rows. Aligned rows
// are copied in units of 16 bytes; they are available after the copies' wait and a barrier.
template <typename T>
__device__ void load(T* to, const T* from, int rows, int total, int columns, int pitch) {
  constexpr int kChunk = 16 / int(sizeof(T));
  if (columns == pitch && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    const int count = rows * columns / kChunk;
#pragma unroll 4
    for (int i = int(threadIdx.x); i < count; i += kThreads) {
      copy_async_16(to + i * kChunk, from + i * kChunk);
    }
    for (int i = rows * columns + int(threadIdx.x); i < total * pitch; i += kThreads) to[i] = T(0);
    return;
  }
  for (int i = int(threadIdx.x); i < total * pitch; i += kThreads) {
    const int row = i / pitch, column = i % pitch;
    to[i] = row < rows && column < columns ? from[row * columns + column] : T(0);
  }
}

// Sums each of a lane's values over the warp. Lanes pass on half of their values and keep the sums
// of the other half, until one is left; this takes a fifth of the shuffles of separate sums.
// Returns the sum of value *which, or -1 if the lane is left with none.
template <int kCount, int kApart, typename T>
__device__ T scatter_sums(const T (&values)[kCount], int* which) {
  constexpr int kHalf = (kCount + 1) / 2;
  const bool upper = threadIdx.x & kApart;
  T kept[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const T above = kHalf + i < kCount ? values[kHalf + i < kCount ? kHalf + i : 0] : T(0);
    kept[i] = (upper ? above : values[i]) + __shfl_xor_sync(~0u, upper ? values[i] : above, kApart);
  }
  T sum;
  if constexpr (kApart > 1) {
    sum = scatter_sums<kHalf, kApart / 2>(kept, which);
  } else {
    static_assert(kHalf == 1, "up to 32 values");
    sum = kept[0];
    *which = 0;
  }
  if (*which >= 0 && upper) *which += kHalf;
  if (*which >= kCount) *which = -1;
  return sum;
}

// Computes the logits of a warp's rows, then loss and dl of each, with class c in lane c. `b` is
// -infinity past the classes.
template <typename T, int kClasses>
__device__ void classify(const HeadArgs<T>& args, const T* h, const T* w, const T* b,
                         const int* labels, T* dl, int rows, int pitch, double* loss,
                         int* correct) {
  const int lane = int(threadIdx.x) % 32;
  const int first = int(threadIdx.x) / 32 * kWarpRows;
  if (first >= rows) return;
  T z[kWarpRows][kClasses] = {};
  for (int j = 4 * lane; j < pitch; j += 128) {
    Four<T> own[kWarpRows];
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) own[r] = four(h + min(first + r, rows - 1) * pitch + j);
#pragma unroll
    for (int c = 0; c < kClasses; ++c) {
      const Four<T> weight = four(w + c * pitch + j);
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) {
#pragma unroll
        for (int e = 0; e < 4; ++e) z[r][c] = fma(own[r].values[e], weight.values[e], z[r][c]);
      }
    }
  }
  // Sums go where dl will be, to the lane of their class.
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    int c;
    const T sum = scatter_sums<kClasses, 16>(z[r], &c);
    if (c >= 0 && first + r < rows) dl[(first + r) * rounded_up(kClasses) + c] = sum + b[c];
  }
  __syncwarp();
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    if (first + r >= rows) continue;
    const T own = lane < kClasses ? dl[(first + r) * rounded_up(kClasses) + lane] : -T(INFINITY);
    __syncwarp();  // the sums are read before dl replaces them
    const int label = labels[first + r];
    const T most = warp_most(own);
    const T power = exp(own - most);
    const T sum = warp_sum(power);
    if (lane < rounded_up(kClasses)) {
      dl[(first + r) * rounded_up(kClasses) + lane] =
          (power / sum - (lane == label ? T(1) : T(0))) * T(args.scale);
    }
    *loss += double(log(sum) + most - __shfl_sync(~0u, own, label));
    *correct += __ffs(int(__ballot_sync(~0u, own == most))) - 1 == label;
  }
}

// dz, and the sums over this block's rows; a thread has one hidden unit.
template <typename T, int kClasses, int kTerms>
__device__ void descend(const HeadArgs<T>& args, const T* h, const T* w, const T* dl, int row0,
                        int rows, int pitch, T* part) {
  constexpr int kRounded = rounded_up(kClasses);
  const int hidden = args.hidden, classes = args.classes;
  const tile::Slope<T> slope(args.activation);
  for (int j = int(threadIdx.x); j < hidden; j += kThreads) {
    T weight[kRounded] = {}, dw[kRounded] = {}, db = T(0);
#pragma unroll
    for (int c = 0; c < kClasses; ++c) weight[c] = w[c * pitch + j];
    tile::DzOut<T, kTerms> out(args, row0, j, weight);
    const T* own_at = h + j;
    const T* dl_at = dl;
#pragma unroll 4
    for (int r = 0; r < rows; ++r, own_at += pitch, dl_at += kRounded) {
      const T own = *own_at;
      T dh = T(0);
#pragma unroll
      for (int c0 = 0; c0 < kRounded; c0 += 4) {
        const Four<T> d = four(dl_at + c0);
#pragma unroll
        for (int e = 0; e < 4 && c0 + e < kClasses; ++e) {
          dh = fma(d.values[e], weight[c0 + e], dh);
          dw[c0 + e] = fma(d.values[e], own, dw[c0 + e]);
        }
      }
      const T dz = dh * slope(own);
      db += dz;
      out.put(dz);
    }
    out.finish(args, j);
#pragma unroll
    for (int c = 0; c < kClasses; ++c) {
      if (c < classes) part[int64_t(c) * hidden + j] = dw[c];
    }
    part[int64_t(classes) * hidden + classes + j] = db;
  }
  if (int(threadIdx.x) < classes) {
    T sum = T(0);
    for (int r = 0; r < rows; ++r) sum += dl[r * kRounded + int(threadIdx.x)];
    part[int64_t(classes) * hidden + int(threadIdx.x)] = sum;
  }
}

template <typename T, int kClasses, int kTerms>
__global__ void __launch_bounds__(kThreads, 1) head_forward_backward_kernel(HeadArgs<T> args) {
#if __CUDA_ARCH__ >= 800
#if __CUDA_ARCH__ >= 900
  wait_for_previous_kernel();
  allow_next_kernel();
#endif
  extern __shared__ __align__(16) unsigned char head_memory[];
  __shared__ double warp_loss[kWarps];
  __shared__ int warp_correct[kWarps];
  __shared__ T b[kClasses];
  __shared__ int labels[kMostRows];
  const int row0 = int(blockIdx.x) * args.rows, rows = min(args.rows, args.n - row0);
  const int pitch = rounded_up(args.hidden);
  T* dl = reinterpret_cast<T*>(head_memory);
  T* h = dl + args.rows * rounded_up(kClasses);
  T* w = h + args.rows * pitch;
  load(h, args.h + int64_t(row0) * args.hidden, rows, rows, args.hidden, pitch);
  load(w, args.w, args.classes, kClasses, args.hidden, pitch);
  copy_async_commit();
  const int i = int(threadIdx.x);
  if (i < kClasses) {
    b[i] = i >= args.classes ? -T(INFINITY) : args.b != nullptr ? args.b[i] : T(0);
  }
  if (i < rows) labels[i] = args.label[row0 + i];
  copy_async_wait<0>();
  __syncthreads();

  double loss = 0;
  int correct = 0;
  classify<T, kClasses>(args, h, w, b, labels, dl, rows, pitch, &loss, &correct);
  if (threadIdx.x % 32 == 0) {  // all lanes of a warp have the same value
    warp_loss[threadIdx.x / 32] = loss;
    warp_correct[threadIdx.x / 32] = correct;
  }
  __syncthreads();
  const int64_t sums = int64_t(args.classes) * args.hidden + args.classes + args.hidden;
  descend<T, kClasses, kTerms>(args, h, w, dl, row0, rows, pitch,
                               args.partial + int64_t(blockIdx.x) * sums);
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kWarps; ++warp) {
      loss += warp_loss[warp];
      correct += warp_correct[warp];
    }
    args.loss[blockIdx.x] = loss;
    args.correct[blockIdx.x] = correct;
  }
#endif
}

// The numbers of classes that functions are built for: ten are so common that they are not padded.
int built_classes(int classes) {
  return classes <= 10 ? 10 : classes <= 16 ? 16 : kHeadMostClasses;
}

template <typename T, int kClasses, int kTerms>
cudaError_t launch(const HeadArgs<T>& args, const HeadLayout& layout, cudaStream_t stream) {
  constexpr auto kKernel = head_forward_backward_kernel<T, kClasses, kTerms>;
  const cudaError_t error = cudaFuncSetAttribute(
      kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(layout.shared_bytes));
  if (error != cudaSuccess) return error;
  LaunchConfig launch(layout.parts, kThreads, int(layout.shared_bytes), 1, layout.overlap);
  const cudaLaunchConfig_t config = launch.on(stream);
  return cudaLaunchKernelEx(&config, kKernel, args);
}

template <typename T, int kTerms>
cudaError_t launch_of(const HeadArgs<T>& args, const HeadLayout& layout, cudaStream_t stream) {
  switch (built_classes(args.classes)) {
    case 10:
      return launch<T, 10, kTerms>(args, layout, stream);
    case 16:
      return launch<T, 16, kTerms>(args, layout, stream);
    default:
      return launch<T, kHeadMostClasses, kTerms>(args, layout, stream);
  }
}

constexpr int kSumThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kSumThreads) head_sums_kernel(HeadSums<T> sums, StepEnd end) {
#if __CUDA_ARCH__ >= 900
  wait_for_previous_kernel();
  allow_next_kernel();
#endif
  tile::apply_head_sums(sums);
  if (end.tick == nullptr) return;
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(end.done, 1u) == gridDim.x - 1) {
    *end.tick += 1;
    *end.done = 0;
  }
}

}  // namespace

HeadLayout head_layout(int n, int hidden, int classes, size_t width) {
  constexpr size_t kStatic = 2048;  // static shared memory
  int device = 0, sms = 0, shared = 0, generation = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, device);
  if (sms == 0 || size_t(shared) < kStatic) return {};
  const size_t shared_limit = size_t(shared) - kStatic;
  HeadLayout layout;
  layout.overlap = generation >= 9;
  const int built = built_classes(classes);
  const int even = (n + sms - 1) / sms;
  for (int rows = std::min(even, kMostRows); rows >= 1; --rows) {
    const size_t elements = size_t(rows + built) * size_t(rounded_up(hidden)) +
                            size_t(rows) * size_t(rounded_up(built));
    if (elements * width > shared_limit) continue;
    layout.rows = rows;
    layout.parts = (n + rows - 1) / rows;
    layout.shared_bytes = elements * width;
    break;
  }
  return layout;
}

template <typename T>
cudaError_t launch_head(const HeadArgs<T>& args, const HeadLayout& layout, cudaStream_t stream) {
  if (args.dz_terms == nullptr) return launch_of<T, 0>(args, layout, stream);
  if constexpr (std::is_same_v<T, float>) {
    return args.terms == 1 ? launch_of<T, 1>(args, layout, stream)
                           : launch_of<T, 2>(args, layout, stream);
  }
  return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t launch_head_sums(const HeadSums<T>& sums, const StepEnd& end, const HeadLayout& layout,
                             cudaStream_t stream) {
  const int count = sums.classes * sums.hidden + sums.classes + sums.hidden;
  LaunchConfig launch(ceil_div(count, 32), kSumThreads, 0, 1, layout.overlap);
  const cudaLaunchConfig_t config = launch.on(stream);
  return cudaLaunchKernelEx(&config, head_sums_kernel<T>, sums, end);
}

template cudaError_t launch_head_sums(const HeadSums<float>&, const StepEnd&, const HeadLayout&,
                                      cudaStream_t);
template cudaError_t launch_head_sums(const HeadSums<double>&, const StepEnd&, const HeadLayout&,
                                      cudaStream_t);
template cudaError_t launch_head(const HeadArgs<float>&, const HeadLayout&, cudaStream_t);
template cudaError_t launch_head(const HeadArgs<double>&, const HeadLayout&, cudaStream_t);

}  // namespace ridgeline::cuda
