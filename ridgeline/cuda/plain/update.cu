#include <algorithm>

#include "ridgeline/cuda/plain/sgd.cuh"
#include "ridgeline/cuda/plain/update.h"
#include "ridgeline/ops/grad_scale.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1024;

// blockIdx.y is the tensor, the rest its elements.
template <typename T>
dim3 grid_for(const UpdateTensors<T>& tensors) {
  int64_t most = 0;
  for (int i = 0; i < tensors.size; ++i) most = std::max(most, tensors.tensor[i].count);
  const int64_t blocks = std::clamp<int64_t>((most + kThreads - 1) / kThreads, 1, kMostBlocks);
  return dim3(unsigned(blocks), unsigned(tensors.size));
}

// The copy of element i, from w as it is stored.
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

template <typename T>
__global__ void adam_kernel(AdamSettings s, const __grid_constant__ UpdateTensors<T> tensors) {
  using A = Accumulated<T>;
  const UpdateTensor<T>& t = tensors.tensor[blockIdx.y];
  if (blockIdx.x > 0 && int64_t(blockIdx.x) * kThreads * 4 >= t.count) return;
  // The corrections need fp64 (1 - 0.999 in fp32 has lost ten bits), but only once a block; two
  // warps have one each, because they take as long as the rest of a small tensor's block.
  __shared__ A correction1, correction2;
  if (threadIdx.x % 32 == 0 && threadIdx.x < 64) {
    const double now = double(*s.step + *s.tick + 1);
    const bool first = threadIdx.x == 0;
    (first ? correction1 : correction2) = A(1.0 - pow(first ? s.beta1 : s.beta2, now));
  }
  __syncthreads();
  const A lr = A(s.lr[*s.tick]), scale = s.grad_scale != nullptr ? A(*s.grad_scale) : A(1);
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
  // Four at a time; memory starts at whole chunks.
  struct alignas(4 * sizeof(T)) FourT {
    T values[4];
  };
  struct alignas(16) FourA {
    A values[4];
  };
  const int64_t stride = int64_t(gridDim.x) * kThreads, first = int64_t(blockIdx.x) * kThreads;
  const int64_t fours = t.count / 4;
  for (int64_t four = first + threadIdx.x; four < fours; four += stride) {
    FourT w = reinterpret_cast<FourT*>(t.w)[four];
    const FourT dw = reinterpret_cast<const FourT*>(t.dw)[four];
    FourA m = reinterpret_cast<FourA*>(t.m)[four], v = reinterpret_cast<FourA*>(t.v)[four];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      update(4 * four + e, w.values[e], dw.values[e], m.values[e], v.values[e]);
    }
    reinterpret_cast<FourT*>(t.w)[four] = w;
    reinterpret_cast<FourA*>(t.m)[four] = m;
    reinterpret_cast<FourA*>(t.v)[four] = v;
  }
  for (int64_t i = 4 * fours + first + threadIdx.x; i < t.count; i += stride) {
    update(i, t.w[i], t.dw[i], t.m[i], t.v[i]);
  }
}

// The sum over a block of 256, in thread 0.
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

// In fp64 whatever T: a norm of many small gradients must not lose them.
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
                        cudaStream_t stream) {
  adam_kernel<<<grid_for(tensors), kThreads, 0, stream>>>(settings, tensors);
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

#define RIDGELINE_LAUNCH_UPDATE(T)                                                              \
  template cudaError_t launch_sgd(const SgdSettings&, const UpdateTensors<T>&, cudaStream_t);   \
  template cudaError_t launch_adam(const AdamSettings&, const UpdateTensors<T>&, cudaStream_t); \
  template cudaError_t launch_square_sums(const UpdateTensors<T>&, double*, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_UPDATE)

}  // namespace ridgeline::cuda
