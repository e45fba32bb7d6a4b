#include <algorithm>

#include "ridgeline/cuda/plain/accumulate.cuh"
#include "ridgeline/cuda/plain/loss.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kFewClasses = 16;       // up to these eight lanes share a row, above them a warp
constexpr int kRowsOfOneBlock = 256;  // more rows are worth a second kernel
constexpr int kMostBlocks = 256;

struct Partial {
  double loss;
  int32_t correct;
};

// Reductions over the kLanes neighbouring threads that share a row; every lane gets the result.
template <int kLanes, typename A>
__device__ A lanes_sum(A value) {
#pragma unroll
  for (int off = kLanes / 2; off > 0; off /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, off, kLanes);
  }
  return value;
}

// The largest element of a row and where it is first reached.
template <typename A>
struct Largest {
  A value;
  int64_t at;

  __device__ void take(A other, int64_t other_at) {
    if (other > value || (other == value && other_at < at)) {
      value = other;
      at = other_at;
    }
  }
};

template <int kLanes, typename T>
__device__ Largest<Accumulated<T>> row_largest(const T* x, int64_t classes, int lane) {
  using A = Accumulated<T>;
  Largest<A> best{A(-INFINITY), classes};
  for (int64_t c = lane; c < classes; c += kLanes) best.take(A(x[c]), c);
#pragma unroll
  for (int off = kLanes / 2; off > 0; off /= 2) {
    const A value = __shfl_xor_sync(0xffffffffu, best.value, off, kLanes);
    best.take(value, __shfl_xor_sync(0xffffffffu, best.at, off, kLanes));
  }
  return best;
}

template <int kLanes, typename T, typename A>
__device__ A row_exp_sum(const T* x, int64_t classes, int lane, A max) {
  A sum = A(0);
  for (int64_t c = lane; c < classes; c += kLanes) sum += exp(A(x[c]) - max);
  return lanes_sum<kLanes>(sum);
}

template <typename T>
__device__ Accumulated<T> gradient_scale(const LossArgs<T>& args) {
  return Accumulated<T>(args.grad_scale * (args.grad_factor != nullptr ? *args.grad_factor : 1.0));
}

// One row's loss, the same in all of its lanes.
template <int kLanes, typename T>
__device__ double xent_row(const LossArgs<T>& args, int64_t row, int lane,
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

template <int kLanes, typename T>
__device__ double mse_row(const LossArgs<T>& args, int64_t row, int lane) {
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

template <typename T>
__device__ void write_score(const LossArgs<T>& args, double loss, int32_t correct) {
  const int32_t at = *args.tick;
  args.loss[at] = args.loss_scale * loss;
  if (args.correct != nullptr) args.correct[at] = correct;
}

// Rows in groups of kLanes threads. A grid of one block writes the score itself, else each block
// leaves its part for loss_finish_kernel. All lanes of a warp make the same number of passes, since
// the shuffles need them all.
template <typename T, int kLanes, bool kXent>
__global__ void __launch_bounds__(kThreads) loss_kernel(LossArgs<T> args, Partial* partial) {
  constexpr int kGroups = kThreads / kLanes;
  __shared__ double losses[kGroups];
  __shared__ int32_t hits[kGroups];
  const int lane = int(threadIdx.x) % kLanes, group = int(threadIdx.x) / kLanes;
  const bool counts = args.correct != nullptr;
  double loss = 0;
  int32_t correct = 0;
  for (int64_t row0 = int64_t(blockIdx.x) * kGroups; row0 < args.n;
       row0 += int64_t(gridDim.x) * kGroups) {
    const bool inside = row0 + group < args.n;
    LossArgs<T> own = args;
    if (!inside) own.dx = nullptr;
    const int64_t row = inside ? row0 + group : 0;  // any row, its result dropped
    Largest<Accumulated<T>> best{};
    if (kXent || counts) {
      best = row_largest<kLanes>(args.x + row * args.classes, args.classes, lane);
    }
    double here;
    if constexpr (kXent) {
      here = xent_row<kLanes>(own, row, lane, best);
    } else {
      here = mse_row<kLanes>(own, row, lane);
    }
    if (!inside) continue;
    loss += here;
    if (counts) correct += best.at == args.label[row];
  }
  if (args.loss == nullptr) return;
  if (lane == 0) {
    losses[group] = loss;
    hits[group] = correct;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int g = 1; g < kGroups; ++g) {
    loss += losses[g];
    correct += hits[g];
  }
  if (gridDim.x == 1) {
    write_score(args, loss, correct);
  } else {
    partial[blockIdx.x] = {loss, correct};
  }
}

// One warp adds the blocks' parts, always in the same order.
template <typename T>
__global__ void loss_finish_kernel(LossArgs<T> args, const Partial* partial, int count) {
  double loss = 0;
  int32_t correct = 0;
  for (int i = int(threadIdx.x); i < count; i += 32) {
    loss += partial[i].loss;
    correct += partial[i].correct;
  }
  loss = lanes_sum<32>(loss);
  correct = lanes_sum<32>(correct);
  if (threadIdx.x == 0) write_score(args, loss, correct);
}

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

// y[row] = the first place of the largest x[row, :]
template <typename T, int kLanes>
__global__ void argmax_kernel(const T* x, int32_t* y, int64_t n, int64_t classes) {
  const int lane = int(threadIdx.x) % kLanes;
  const int64_t group = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / kLanes;
  const int64_t row = group < n ? group : 0;
  const auto largest = row_largest<kLanes>(x + row * classes, classes, lane);
  // Nothing is larger than the others in a row of NaNs.
  if (group < n && lane == 0) y[row] = largest.at < classes ? int32_t(largest.at) : 0;
}

int loss_blocks(int64_t n, int lanes) {
  const int64_t groups = kThreads / lanes;
  return int(std::min<int64_t>((n + groups - 1) / groups, kMostBlocks));
}

template <typename T, int kLanes, bool kXent>
cudaError_t launch_loss_lanes(const LossArgs<T>& args, void* workspace, cudaStream_t stream) {
  const bool one = args.loss != nullptr && args.n <= kRowsOfOneBlock;
  const int blocks = one ? 1 : std::max(1, loss_blocks(args.n, kLanes));
  auto* partial = static_cast<Partial*>(workspace);
  loss_kernel<T, kLanes, kXent><<<blocks, kThreads, 0, stream>>>(args, partial);
  if (args.loss != nullptr && blocks > 1) {
    loss_finish_kernel<<<1, 32, 0, stream>>>(args, partial, blocks);
  }
  return cudaGetLastError();
}

template <bool kXent, typename T>
cudaError_t launch_loss(const LossArgs<T>& args, void* workspace, cudaStream_t stream) {
  return args.classes <= kFewClasses ? launch_loss_lanes<T, 8, kXent>(args, workspace, stream)
                                     : launch_loss_lanes<T, 32, kXent>(args, workspace, stream);
}

}  // namespace

size_t loss_workspace(int64_t n) {
  return n <= kRowsOfOneBlock ? 0 : kMostBlocks * sizeof(Partial);
}

template <typename T>
cudaError_t launch_softmax_xent(const LossArgs<T>& args, void* workspace, cudaStream_t stream) {
  return launch_loss<true>(args, workspace, stream);
}

template <typename T>
cudaError_t launch_mse(const LossArgs<T>& args, void* workspace, cudaStream_t stream) {
  return launch_loss<false>(args, workspace, stream);
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
