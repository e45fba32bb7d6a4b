#include "ridgeline/cuda/conv1d/grads.h"
#include "ridgeline/cuda/conv1d/transpose_signal.h"
#include "ridgeline/cuda/gemm/gemm.h"

namespace ridgeline::cuda {
namespace {

// flipped[c, taps - 1 - u, o] = w[o, c, u]
template <typename T>
__global__ void conv1d_grad_x_flip_weights_kernel(const T* w, T* flipped, Conv1dGradShape s) {
  const int64_t count = int64_t(s.channels) * s.taps * s.out;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int o = int(i % s.out), u = s.taps - 1 - int(i / s.out % s.taps);
    const int c = int(i / s.out / s.taps);
    flipped[i] = w[(int64_t(o) * s.channels + c) * s.taps + u];
  }
}

// dw[o, c, u] = transposed[o, u, c]
template <typename T>
__global__ void conv1d_grad_w_transpose_kernel(const float* transposed, MixedOut<T> dw,
                                               Conv1dGradShape s) {
  const int64_t count = int64_t(s.channels) * s.taps * s.out;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int u = int(i % s.taps), c = int(i / s.taps % s.channels);
    const int64_t o = i / s.taps / s.channels;
    dw.put(i, transposed[(o * s.taps + u) * s.channels + c]);
  }
}

constexpr size_t kAlign = 256;
size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

constexpr int kTransposeBlocks = 264, kTransposeThreads = 256;

// The bytes of the rows of channels of all samples, followed by `more` rows of zeros, each of
// `channels` halves.
size_t rows_bytes(const Conv1dGradShape& s, int more, int channels) {
  return aligned((size_t(s.n) * size_t(s.length) + size_t(more)) * size_t(channels) * 2);
}

std::function<void(cudaStream_t)> first_of(std::vector<PreparedGemm> list) {
  return list.empty() ? nullptr : std::move(list.front().run);
}

}  // namespace

std::string refuse_conv1d_grads(const Conv1dGradShape& s) {
  if (s.channels % 64 != 0 || s.out % 64 != 0) return "takes channels by 64";
  if (int64_t{s.n} * s.length > (int64_t{1} << 30)) return "an extent of over 2^30";
  return {};
}

size_t conv1d_grad_x_workspace(const Conv1dGradShape& s) {
  return rows_bytes(s, s.taps - 1, s.out) + rows_bytes(s, 0, s.channels) +
         aligned(size_t(s.channels) * size_t(s.taps) * size_t(s.out) * 2);
}

template <typename T>
std::function<cudaError_t(cudaStream_t)> prepare_conv1d_grad_x(const Conv1dGradShape& s,
                                                               const T* dy, const T* w, T* dx,
                                                               void* workspace) {
  char* at = static_cast<char*>(workspace);
  T* before = reinterpret_cast<T*>(at);  // the rows of zeros that the first windows reach
  T* dy_rows = before + int64_t(s.taps - 1) * s.out;
  T* dx_rows = reinterpret_cast<T*>(at += rows_bytes(s, s.taps - 1, s.out));
  T* flipped = reinterpret_cast<T*>(at += rows_bytes(s, 0, s.channels));
  const int depth = s.taps * s.out;
  const GemmProblem problem{s.n * s.length, s.channels, depth,    before,  s.out,     Major::k,
                            flipped,        depth,      Major::k, dx_rows, s.channels};
  const auto product = first_of(prepare_gemm_variants<T, T>(problem, StoreSum{}, {}));
  return [=](cudaStream_t stream) {
    if (!product) return cudaErrorInvalidValue;
    cudaError_t error =
        cudaMemsetAsync(before, 0, size_t(s.taps - 1) * size_t(s.out) * sizeof(T), stream);
    if (error != cudaSuccess) return error;
    error =
        launch_transpose_signal<T>({s.n, s.out, s.steps(), s.length}, true, dy, dy_rows, stream);
    if (error != cudaSuccess) return error;
    conv1d_grad_x_flip_weights_kernel<T>
        <<<kTransposeBlocks, kTransposeThreads, 0, stream>>>(w, flipped, s);
    product(stream);
    return launch_transpose_signal<T>({s.n, s.channels, s.length, s.length}, false, dx_rows, dx,
                                      stream);
  };
}

size_t conv1d_grad_w_workspace(const Conv1dGradShape& s) {
  return rows_bytes(s, s.taps - 1, s.channels) + rows_bytes(s, 0, s.out) +
         aligned(size_t(s.channels) * size_t(s.taps) * size_t(s.out) * sizeof(float));
}

template <typename T>
std::function<cudaError_t(cudaStream_t)> prepare_conv1d_grad_w(const Conv1dGradShape& s, const T* x,
                                                               const T* dy, MixedOut<T> dw,
                                                               void* workspace) {
  char* at = static_cast<char*>(workspace);
  T* x_rows = reinterpret_cast<T*>(at);
  T* after = x_rows + int64_t(s.n) * s.length * s.channels;
  T* dy_rows = reinterpret_cast<T*>(at += rows_bytes(s, s.taps - 1, s.channels));
  auto* transposed = reinterpret_cast<float*>(at += rows_bytes(s, 0, s.out));
  const int width = s.taps * s.channels;
  const GemmProblem problem{s.out,  width,      s.n * s.length, dy_rows,    s.out, Major::mn,
                            x_rows, s.channels, Major::mn,      transposed, width};
  const auto product = first_of(prepare_gemm_variants<T, float>(problem, StoreSum{}, {}));
  return [=](cudaStream_t stream) {
    if (!product) return cudaErrorInvalidValue;
    cudaError_t error =
        cudaMemsetAsync(after, 0, size_t(s.taps - 1) * size_t(s.channels) * sizeof(T), stream);
    if (error != cudaSuccess) return error;
    error =
        launch_transpose_signal<T>({s.n, s.channels, s.length, s.length}, true, x, x_rows, stream);
    if (error != cudaSuccess) return error;
    error =
        launch_transpose_signal<T>({s.n, s.out, s.steps(), s.length}, true, dy, dy_rows, stream);
    if (error != cudaSuccess) return error;
    product(stream);
    conv1d_grad_w_transpose_kernel<T>
        <<<kTransposeBlocks, kTransposeThreads, 0, stream>>>(transposed, dw, s);
    return cudaGetLastError();
  };
}

#define RIDGELINE_CONV1D_GRADS(T)                                          \
  template std::function<cudaError_t(cudaStream_t)> prepare_conv1d_grad_x( \
      const Conv1dGradShape&, const T*, const T*, T*, void*);              \
  template std::function<cudaError_t(cudaStream_t)> prepare_conv1d_grad_w( \
      const Conv1dGradShape&, const T*, const T*, MixedOut<T>, void*);
RIDGELINE_CONV1D_GRADS(__nv_bfloat16)
RIDGELINE_CONV1D_GRADS(__half)

}  // namespace ridgeline::cuda
