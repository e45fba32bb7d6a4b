#include "ridgeline/cuda/plain/index.cuh"
#include "ridgeline/cuda/plain/sequence.h"

namespace ridgeline::cuda {
namespace {

template <typename T>
__global__ void embedding_kernel(const int32_t* token, const T* w, T* y, int64_t count,
                                 int64_t width) {
  for (int64_t i = first_index(); i < count * width; i += index_stride()) {
    y[i] = w[token[i / width] * width + i % width];
  }
}

constexpr int kColumns = 32, kShares = 16, kLooks = 4;

// A block has one code and 32 columns. Each of its warps looks for the code in a share of the
// tokens and adds their rows; the shares are added in order. There are no atomics, so every run
// gives the same bits.
template <typename T>
__global__ void __launch_bounds__(32 * kShares)
    embedding_grad_kernel(const int32_t* token, const T* dy, MixedOut<T> dw, int64_t count,
                          int64_t width) {
  using A = Accumulated<T>;
  __shared__ A sums[kShares][kColumns];
  const int code = blockIdx.x, lane = threadIdx.x, share = threadIdx.y;
  const int64_t column = int64_t(blockIdx.y) * kColumns + lane;
  const int64_t each = (count + kShares - 1) / kShares;
  const int64_t end = min(count, (share + 1) * each);
  A sum = A(0);
  for (int64_t begin = share * each; begin < end; begin += 32 * kLooks) {
    bool mine[kLooks];
#pragma unroll
    for (int k = 0; k < kLooks; ++k) {
      const int64_t i = begin + 32 * k + lane;
      mine[k] = i < end && token[i] == code;
    }
#pragma unroll
    for (int k = 0; k < kLooks; ++k) {
      for (unsigned votes = __ballot_sync(~0u, mine[k]); votes != 0; votes &= votes - 1) {
        const int64_t i = begin + 32 * k + __ffs(int(votes)) - 1;
        if (column < width) sum += A(dy[i * width + column]);
      }
    }
  }
  sums[share][lane] = sum;
  __syncthreads();
  if (share > 0 || column >= width) return;
  for (int k = 1; k < kShares; ++k) sum += sums[k][lane];
  dw.put(code * width + column, sum);
}

__device__ int64_t selected(const StepChoice& c, int64_t b) {
  const int64_t length = c.lengths != nullptr ? c.lengths[b] : c.steps;
  return c.at >= 0 ? c.at : (length + c.at > 0 ? length + c.at : 0);
}

template <typename T>
__global__ void select_timestep_kernel(StepChoice c, const T* x, T* y) {
  for (int64_t i = first_index(); i < c.batch * c.width; i += index_stride()) {
    const int64_t b = i / c.width;
    y[i] = x[(b * c.steps + selected(c, b)) * c.width + i % c.width];
  }
}

template <typename T>
__global__ void select_timestep_grad_kernel(StepChoice c, const T* dy, T* dx) {
  for (int64_t i = first_index(); i < c.batch * c.steps * c.width; i += index_stride()) {
    const int64_t row = i / c.width, b = row / c.steps;
    dx[i] = row % c.steps == selected(c, b) ? dy[b * c.width + i % c.width] : T(0.0f);
  }
}

}  // namespace

template <typename T>
cudaError_t launch_embedding(const int32_t* token, const T* w, T* y, int64_t count, int64_t width,
                             cudaStream_t stream) {
  embedding_kernel<T>
      <<<blocks_for(count * width), kThreads, 0, stream>>>(token, w, y, count, width);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_embedding_grad(const int32_t* token, const T* dy, MixedOut<T> dw, int64_t count,
                                  int64_t vocabulary, int64_t width, cudaStream_t stream) {
  const dim3 grid{unsigned(vocabulary), unsigned((width + kColumns - 1) / kColumns)};
  const dim3 block{32, kShares};
  embedding_grad_kernel<T><<<grid, block, 0, stream>>>(token, dy, dw, count, width);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_select_timestep(const StepChoice& choice, const T* x, T* y,
                                   cudaStream_t stream) {
  select_timestep_kernel<T>
      <<<blocks_for(choice.batch * choice.width), kThreads, 0, stream>>>(choice, x, y);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_select_timestep_grad(const StepChoice& choice, const T* dy, T* dx,
                                        cudaStream_t stream) {
  const int64_t count = choice.batch * choice.steps * choice.width;
  select_timestep_grad_kernel<T><<<blocks_for(count), kThreads, 0, stream>>>(choice, dy, dx);
  return cudaGetLastError();
}

#define INSTANTIATE(T)                                                                           \
  template cudaError_t launch_embedding<T>(const int32_t*, const T*, T*, int64_t, int64_t,       \
                                           cudaStream_t);                                        \
  template cudaError_t launch_embedding_grad<T>(const int32_t*, const T*, MixedOut<T>, int64_t,  \
                                                int64_t, int64_t, cudaStream_t);                 \
  template cudaError_t launch_select_timestep<T>(const StepChoice&, const T*, T*, cudaStream_t); \
  template cudaError_t launch_select_timestep_grad<T>(const StepChoice&, const T*, T*,           \
                                                      cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace ridgeline::cuda
