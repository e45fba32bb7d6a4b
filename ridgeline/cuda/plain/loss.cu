#include "ridgeline/cuda/plain/loss_rows.cuh"

namespace ridgeline::cuda {
namespace {

struct XentRow {
  static constexpr bool kTakesLargest = true;
  template <int kLanes, typename T>
  static __device__ double loss(const LossArgs<T>& args, int64_t row, int lane,
                                Largest<Accumulated<T>> best) {
    using A = Accumulated<T>;
    const T* x = args.x + row * args.classes;
    const A sum = row_exp_sum<kLanes>(x, args.classes, lane, best.value);
    const int32_t label = args.label[row];
    const A scale = gradient_scale(args);
    A at_label = A(0);
    for (int64_t c = lane; c < args.classes; c += kLanes) {
      if (c == label) at_label = A(x[c]);
      if (args.dx == nullptr) continue;
      const A off = exp(A(x[c]) - best.value) / sum - (c == label ? A(1) : A(0));
      args.dx[row * args.classes + c] = T(scale * off);
    }
    return double(log(sum) + best.value - lanes_sum<kLanes>(at_label));
  }
};

struct MseRow {
  static constexpr bool kTakesLargest = false;
  template <int kLanes, typename T>
  static __device__ double loss(const LossArgs<T>& args, int64_t row, int lane,
                                Largest<Accumulated<T>>) {
    using A = Accumulated<T>;
    const A scale = A(2) * gradient_scale(args);
    A sum = A(0);
    for (int64_t c = lane; c < args.classes; c += kLanes) {
      const int64_t i = row * args.classes + c;
      const A target =
          args.target != nullptr ? A(args.target[i]) : (c == args.label[row] ? A(1) : A(0));
      const A off = A(args.x[i]) - target;
      sum += off * off;
      if (args.dx != nullptr) args.dx[i] = T(scale * off);
    }
    return double(lanes_sum<kLanes>(sum));
  }
};

template <typename T, typename Out, int kLanes>
__global__ void softmax_kernel(const T* x, Out* y, int64_t n, int64_t classes) {
  using A = Accumulated<T>;
  const int lane = int(threadIdx.x) % kLanes;
  const int64_t group = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / kLanes;
  const bool inside = group < n;
  const int64_t row = inside ? group : 0;
  x += row * classes;
  const A max = row_largest<kLanes>(x, classes, lane).value;
  const A sum = row_exp_sum<kLanes>(x, classes, lane, max);
  if (!inside) return;
  for (int64_t c = lane; c < classes; c += kLanes) {
    y[row * classes + c] = Out(exp(A(x[c]) - max) / sum);
  }
}

// y[row] = the first index of the maximum of x[row, :]
template <typename T, int kLanes>
__global__ void argmax_kernel(const T* x, int32_t* y, int64_t n, int64_t classes) {
  const int lane = int(threadIdx.x) % kLanes;
  const int64_t group = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / kLanes;
  const int64_t row = group < n ? group : 0;
  const auto largest = row_largest<kLanes>(x + row * classes, classes, lane);
  // A row of NaNs has no maximum; its result is 0.
  if (group < n && lane == 0) y[row] = largest.at < classes ? int32_t(largest.at) : 0;
}

}  // namespace

size_t loss_workspace(int64_t n) {
  return n <= kRowsOfOneBlock ? 0 : kMostBlocks * sizeof(Partial);
}

template <typename T>
cudaError_t launch_softmax_xent(const LossArgs<T>& args, void* workspace, cudaStream_t stream) {
  return launch_loss<XentRow>(args, workspace, stream);
}

template <typename T>
cudaError_t launch_mse(const LossArgs<T>& args, void* workspace, cudaStream_t stream) {
  return launch_loss<MseRow>(args, workspace, stream);
}

template <typename T, typename Out>
cudaError_t launch_softmax(const T* x, Out* y, int64_t n, int64_t classes, cudaStream_t stream) {
  if (n == 0 || classes == 0) return cudaSuccess;
  const int lanes = classes <= kFewClasses ? 8 : 32;
  const auto blocks = unsigned((n * lanes + kThreads - 1) / kThreads);
  if (lanes == 8) {
    softmax_kernel<T, Out, 8><<<blocks, kThreads, 0, stream>>>(x, y, n, classes);
  } else {
    softmax_kernel<T, Out, 32><<<blocks, kThreads, 0, stream>>>(x, y, n, classes);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_argmax(const T* x, int32_t* y, int64_t n, int64_t classes, cudaStream_t stream) {
  const int lanes = classes <= kFewClasses ? 8 : 32;
  const auto blocks = unsigned((n * lanes + kThreads - 1) / kThreads);
  if (lanes == 8) {
    argmax_kernel<T, 8><<<blocks, kThreads, 0, stream>>>(x, y, n, classes);
  } else {
    argmax_kernel<T, 32><<<blocks, kThreads, 0, stream>>>(x, y, n, classes);
  }
  return cudaGetLastError();
}

#define RIDGELINE_LAUNCH_LOSS(T)                                                     \
  template cudaError_t launch_softmax_xent(const LossArgs<T>&, void*, cudaStream_t); \
  template cudaError_t launch_mse(const LossArgs<T>&, void*, cudaStream_t);          \
  template cudaError_t launch_softmax(const T*, T*, int64_t, int64_t, cudaStream_t); \
  template cudaError_t launch_argmax(const T*, int32_t*, int64_t, int64_t, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_LOSS)
template cudaError_t launch_softmax(const __nv_bfloat16*, float*, int64_t, int64_t, cudaStream_t);
template cudaError_t launch_softmax(const __half*, float*, int64_t, int64_t, cudaStream_t);

}  // namespace ridgeline::cuda
