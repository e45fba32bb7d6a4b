#include <algorithm>

#include "ridgeline/cuda/conv/nan_max.cuh"
#include "ridgeline/cuda/conv1d/norm_pool.h"
#include "ridgeline/cuda/conv1d/packed.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kMostWindows = 3;  // per thread: its rows stay in registers
constexpr int kMostThreads = 768;

// Sums over the block; all threads get the result. `scratch` holds one float per warp.
__device__ inline float block_total(float value, float* scratch) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
  __syncthreads();  // the previous result has been read from the scratch memory
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  float total = lane < warps ? scratch[lane] : 0.0f;
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
  return total;
}

// Each block walks over samples. A thread has 16 bytes of channels and every slots-th window; its
// rows stay in registers between the sums and their use.
template <typename T, int kWindows>
__global__ void __launch_bounds__(kMostThreads, 1)
    layer_norm_relu_pool_rows_kernel(NormPoolArgs<T> args, const T* gamma, const T* beta) {
  extern __shared__ __align__(16) char shared[];
  __shared__ float scratch[32];
  T* transposed = reinterpret_cast<T*>(shared);  // [channels][windows]
  const int parts = args.channels / kPacked<T>, windows = args.length / 3;
  const int part = int(threadIdx.x) % parts, slot = int(threadIdx.x) / parts;
  const int slots = int(blockDim.x) / parts;
  const float count = float(args.length) * float(args.channels);
  for (int64_t sample = blockIdx.x; sample < args.n; sample += gridDim.x) {
    const T* x = args.x + sample * args.pitch * args.channels + part * kPacked<T>;
    uint4 rows[kWindows][3];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kWindows; ++k) {
      const int window = k * slots + slot;
      if (window >= windows) continue;
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        rows[k][j] = *reinterpret_cast<const uint4*>(x + int64_t(3 * window + j) * args.channels);
      }
    }
#pragma unroll
    for (int k = 0; k < kWindows; ++k) {
      if (k * slots + slot >= windows) continue;
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        float value[kPacked<T>];
        unpack<T>(rows[k][j], value);
#pragma unroll
        for (int c = 0; c < kPacked<T>; ++c) sum += value[c];
      }
    }
    const float mean = block_total(sum, scratch) / count;
    float squares = 0;
#pragma unroll
    for (int k = 0; k < kWindows; ++k) {
      if (k * slots + slot >= windows) continue;
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        float value[kPacked<T>];
        unpack<T>(rows[k][j], value);
#pragma unroll
        for (int c = 0; c < kPacked<T>; ++c) {
          squares = fmaf(value[c] - mean, value[c] - mean, squares);
        }
      }
    }
    const float rstd = rsqrtf(block_total(squares, scratch) / count + args.epsilon);
#pragma unroll
    for (int k = 0; k < kWindows; ++k) {
      const int window = k * slots + slot;
      if (window >= windows) continue;
      float best[kPacked<T>] = {};
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        const int64_t at = int64_t(3 * window + j) * args.channels + part * kPacked<T>;
        float value[kPacked<T>], g[kPacked<T>], b[kPacked<T>];
        unpack<T>(rows[k][j], value);
        unpack<T>(*reinterpret_cast<const uint4*>(gamma + at), g);
        unpack<T>(*reinterpret_cast<const uint4*>(beta + at), b);
#pragma unroll
        for (int c = 0; c < kPacked<T>; ++c) {
          best[c] = nan_max(best[c], fmaf((value[c] - mean) * rstd, g[c], b[c]));
        }
      }
#pragma unroll
      for (int c = 0; c < kPacked<T>; ++c) {
        transposed[(part * kPacked<T> + c) * windows + window] = T(best[c]);
      }
    }
    __syncthreads();
    const int packs = args.channels * windows / kPacked<T>;
    auto* to = reinterpret_cast<uint4*>(args.y + sample * args.channels * windows);
    for (int j = threadIdx.x; j < packs; j += blockDim.x) {
      to[j] = reinterpret_cast<const uint4*>(shared)[j];
    }
  }
}

template <typename T>
__global__ void transpose_norm_weights_kernel(const T* gamma, const T* beta, T* to, int length,
                                              int channels) {
  const int count = length * channels;
  for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < count;
       i += int(gridDim.x * blockDim.x)) {
    const int from = i % channels * length + i / channels;
    to[i] = gamma[from];
    to[count + i] = beta[from];
  }
}

// The threads of a block: whole windows, and enough that no thread has more than kMostWindows.
int threads_for(int length, int channels, size_t width) {
  const int parts = channels * int(width) / 16, windows = length / 3;
  const int rounds = std::max(1, (windows * parts + kMostThreads - 1) / kMostThreads);
  return (windows + rounds - 1) / rounds * parts;
}

}  // namespace

std::string refuse_norm_pool(int length, int channels, size_t width) {
  if (length % 3 != 0) return "takes lengths divisible by 3";
  if (channels * int(width) % 512 != 0) return "takes channels by 512 bytes";
  const int threads = threads_for(length, channels, width);
  const int parts = channels * int(width) / 16, windows = length / 3;
  if (threads > kMostThreads || windows > kMostWindows * (threads / parts)) {
    return "a sample does not fit a block's registers";
  }
  if (int64_t{channels} * windows * int64_t(width) > 48 * 1024) return "a sample is too large";
  return {};
}

size_t norm_pool_workspace(int length, int channels, size_t width) {
  return 2 * size_t(length) * size_t(channels) * width;
}

template <typename T>
cudaError_t launch_norm_pool(const NormPoolArgs<T>& args, void* workspace, int sms,
                             cudaStream_t stream) {
  T* transposed = static_cast<T*>(workspace);
  const int threads = threads_for(args.length, args.channels, sizeof(T));
  const size_t bytes = size_t(args.channels) * size_t(args.length / 3) * sizeof(T);
  transpose_norm_weights_kernel<T>
      <<<sms, 256, 0, stream>>>(args.gamma, args.beta, transposed, args.length, args.channels);
  const int slots = threads / (args.channels * int{sizeof(T)} / 16);
  const int each = (args.length / 3 + slots - 1) / slots;
  const auto kernel = each == 1   ? layer_norm_relu_pool_rows_kernel<T, 1>
                      : each == 2 ? layer_norm_relu_pool_rows_kernel<T, 2>
                                  : layer_norm_relu_pool_rows_kernel<T, kMostWindows>;
  kernel<<<unsigned(std::min(args.n, 2 * sms)), unsigned(threads), bytes, stream>>>(
      args, transposed, transposed + args.length * args.channels);
  return cudaGetLastError();
}

template cudaError_t launch_norm_pool(const NormPoolArgs<__nv_bfloat16>&, void*, int, cudaStream_t);
template cudaError_t launch_norm_pool(const NormPoolArgs<__half>&, void*, int, cudaStream_t);
template cudaError_t launch_norm_pool(const NormPoolArgs<float>&, void*, int, cudaStream_t);

}  // namespace ridgeline::cuda
