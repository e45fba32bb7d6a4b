#include <algorithm>

#include "ridgeline/cuda/plain/sgd.cuh"
#include "ridgeline/cuda/plain/update.h"
#include "ridgeline/ops/grad_scale.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1024;

// blockIdx.y selects the tensor, the other indices its elements.
template <typename T>
dim3 grid_for(const UpdateTensors<T>& tensors) {
  int64_t most = 0;
  for (int i = 0; i < tensors.size; ++i) most = std::max(most, tensors.tensor[i].count);
  const int64_t blocks = std::clamp<int64_t>((most + kThreads - 1) / kThreads, 1, kMostBlocks);
  return dim3(unsigned(blocks), unsigned(tensors.size));
}

// Writes the half copy of element i from w in its stored form.
template <typename T, typename A>
__device__ void store_copy(const UpdateTensor<T>& t, int64_t i, A w) {
  if constexpr (std::is_same_v<T, float>) {
    if (t.copy == nullptr) return;
    if (t.copy_is_bf16) {
      static_cast<__nv_bfloat16*>(t.copy)[i] = __float2bfloat16_rn(w);
    } else {
      static_cast<__half*>(t.copy)[i] = __float2half_rn(w);
    }
  }
}

template <typename T>
__global__ void sgd_kernel(SgdSettings settings, const __grid_constant__ UpdateTensors<T> tensors) {
  using A = Accumulated<T>;
  const UpdateTensor<T>& t = tensors.tensor[blockIdx.y];
  const SgdRates<A> rates(settings);
  if (rates.scale == A(0)) return;  // the step is skipped
  const int64_t stride = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < t.count; i += stride) {
    store_copy(t, i, sgd_element(rates, t.w, t.m, i, A(t.dw[i])));
  }
}

// Adam's blocks: those of tensor i begin at start[i]. The grid has one dimension, because thousands
// of blocks without work would take longer than the rest.
struct TensorBlocks {
  int start[kMostTensors + 1];
};
constexpr int kAdamFours = 2;  // groups of four elements per thread, so that all blocks run at once
constexpr int64_t kAdamElements = int64_t{kThreads} * kAdamFours * 4;

template <typename T>
TensorBlocks adam_blocks(const UpdateTensors<T>& tensors) {
  TensorBlocks blocks{};
  for (int i = 0; i < tensors.size; ++i) {
    const int64_t count = (tensors.tensor[i].count + kAdamElements - 1) / kAdamElements;
    blocks.start[i + 1] = blocks.start[i] + int(count);
  }
  return blocks;
}

// base^n by squaring, with an error of n * 2^-53, which is negligible in fp32. pow() would take
// longer than the whole update that waits for it.
__device__ inline double power(double base, int64_t n) {
  double result = 1;
  for (; n > 0; n /= 2, base *= base) {
    if (n % 2 == 1) result *= base;
  }
  return result;
}

// 1 - beta^step in A. This needs fp64 (1 - 0.999 in fp32 loses ten bits).
template <typename A>
__device__ A adam_correction(double beta, int64_t step) {
  return A(1.0 - (std::is_same_v<A, double> ? pow(beta, double(step)) : power(beta, step)));
}

template <typename T>
__global__ void __launch_bounds__(kThreads, std::is_same_v<T, double> ? 1 : 4)
    adam_kernel(AdamSettings s, const __grid_constant__ UpdateTensors<T> tensors,
                const __grid_constant__ TensorBlocks blocks) {
  using A = Accumulated<T>;
  // Computed once per block, one warp each: they take as long as the rest of a small tensor's
  // block.
  __shared__ A correction1, correction2, lr, scale;
  for (int block = blockIdx.x; block < blocks.start[tensors.size]; block += gridDim.x) {
    int which = 0;
    while (block >= blocks.start[which + 1]) ++which;
    const UpdateTensor<T>& t = tensors.tensor[which];
    // Four at a time; memory starts at whole chunks.
    struct alignas(4 * sizeof(T)) FourT {
      T values[4];
    };
    struct alignas(16) FourA {
      A values[4];
    };
    FourT w[kAdamFours], dw[kAdamFours];
    FourA m[kAdamFours], v[kAdamFours];
    const int64_t fours = t.count / 4;
    const int64_t first =
        int64_t(block - blocks.start[which]) * kThreads * kAdamFours + threadIdx.x;
#pragma unroll
    // Loads are in flight while the corrections are computed.
    for (int k = 0; k < kAdamFours; ++k) {
      const int64_t four = first + k * kThreads;
      if (four >= fours) continue;
      w[k] = reinterpret_cast<const FourT*>(t.w)[four];
      dw[k] = reinterpret_cast<const FourT*>(t.dw)[four];
      m[k] = reinterpret_cast<const FourA*>(t.m)[four];
      v[k] = reinterpret_cast<const FourA*>(t.v)[four];
    }
    if (block == int(blockIdx.x)) {
      if (threadIdx.x == 0) correction1 = adam_correction<A>(s.beta1, *s.step + *s.tick + 1);
      if (threadIdx.x == 32) correction2 = adam_correction<A>(s.beta2, *s.step + *s.tick + 1);
      if (threadIdx.x == 64) lr = A(s.lr[*s.tick]);
      if (threadIdx.x == 96) scale = s.grad_scale != nullptr ? A(*s.grad_scale) : A(1);
      __syncthreads();
    }
    if (scale == A(0)) return;  // the step is skipped
    const A gain1 = A(1.0 - s.beta1), gain2 = A(1.0 - s.beta2), decay = A(s.decay);
    const A rate = lr / correction1;
    const auto update = [&](int64_t i, T& weight, T slope, A& m, A& v) {
      A w = A(weight), g = A(slope) * scale;
      if (s.decoupled) {
        w -= lr * decay * w;
      } else {
        g += decay * w;
      }
      m += gain1 * (g - m);
      v += gain2 * (g * g - v);
      w -= rate * m / (sqrt(v / correction2) + A(s.epsilon));
      weight = T(w);
      store_copy(t, i, w);
    };
#pragma unroll
    for (int k = 0; k < kAdamFours; ++k) {
      const int64_t four = first + k * kThreads;
      if (four >= fours) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        update(4 * four + e, w[k].values[e], dw[k].values[e], m[k].values[e], v[k].values[e]);
      }
      reinterpret_cast<FourT*>(t.w)[four] = w[k];
      reinterpret_cast<FourA*>(t.m)[four] = m[k];
      reinterpret_cast<FourA*>(t.v)[four] = v[k];
    }
    const int64_t rest = 4 * fours + threadIdx.x;  // the elements past the last group of four
    if (block == blocks.start[which] && rest < t.count) {
      update(rest, t.w[rest], t.dw[rest], t.m[rest], t.v[rest]);
    }
  }
}

// The sum over a block of 256 threads, in thread 0.
__device__ double block_sum(double value) {
  __shared__ double warps[kThreads / 32];
#pragma unroll
  for (int off = 16; off > 0; off /= 2) value += __shfl_xor_sync(0xffffffffu, value, off);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < kThreads / 32; ++i) value += warps[i];
  }
  return value;
}

// In fp64 for every T, because a norm of many small gradients must not lose them.
template <typename T>
__global__ void square_sums_kernel(const __grid_constant__ UpdateTensors<T> tensors,
                                   double* partial) {
  double sum = 0;
  for (int k = 0; k < tensors.size; ++k) {
    const UpdateTensor<T>& t = tensors.tensor[k];
    const int64_t stride = int64_t(gridDim.x) * kThreads;
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < t.count; i += stride) {
      const double g = double(Accumulated<T>(t.dw[i]));
      sum += g * g;
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void norm_kernel(NormArgs args) {
  double sum = 0;
  for (int i = int(threadIdx.x); i < args.count; i += kThreads) sum += args.partial[i];
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  const bool scaled = args.loss_scale != nullptr;
  GradScale now;
  now.clipped = *args.clipped;
  if (scaled) {
    now.loss_scale = *args.loss_scale;
    now.good = *args.good;
    now.skipped = *args.skipped;
  }
  now.update(sum, args.max_norm, scaled, args.growth);
  *args.norm = now.norm;
  *args.scale = now.scale;
  *args.clipped = now.clipped;
  if (!scaled) return;
  *args.loss_scale = now.loss_scale;
  *args.good = now.good;
  *args.skipped = now.skipped;
}

__global__ void tick_kernel(int32_t* tick) { *tick += 1; }

}  // namespace

template <typename T>
cudaError_t launch_sgd(const SgdSettings& settings, const UpdateTensors<T>& tensors,
                       cudaStream_t stream) {
  sgd_kernel<<<grid_for(tensors), kThreads, 0, stream>>>(settings, tensors);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_adam(const AdamSettings& settings, const UpdateTensors<T>& tensors,
                        int most_blocks, cudaStream_t stream) {
  const TensorBlocks blocks = adam_blocks(tensors);
  const int count = std::min(blocks.start[tensors.size], most_blocks);
  if (count == 0) return cudaSuccess;
  adam_kernel<<<unsigned(count), kThreads, 0, stream>>>(settings, tensors, blocks);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_square_sums(const UpdateTensors<T>& tensors, double* partial,
                               cudaStream_t stream) {
  square_sums_kernel<<<kNormBlocks, kThreads, 0, stream>>>(tensors, partial);
  return cudaGetLastError();
}

cudaError_t launch_norm(const NormArgs& args, cudaStream_t stream) {
  norm_kernel<<<1, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

cudaError_t launch_tick(int32_t* tick, cudaStream_t stream) {
  tick_kernel<<<1, 1, 0, stream>>>(tick);
  return cudaGetLastError();
}

#define RIDGELINE_LAUNCH_UPDATE(T)                                                            \
  template cudaError_t launch_sgd(const SgdSettings&, const UpdateTensors<T>&, cudaStream_t); \
  template cudaError_t launch_adam(const AdamSettings&, const UpdateTensors<T>&, int,         \
                                   cudaStream_t);                                             \
  template cudaError_t launch_square_sums(const UpdateTensors<T>&, double*, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_UPDATE)

}  // namespace ridgeline::cuda
