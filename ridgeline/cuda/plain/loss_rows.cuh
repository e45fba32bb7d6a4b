#pragma once

#include <algorithm>

#include "ridgeline/cuda/plain/accumulate.cuh"
#include "ridgeline/cuda/plain/loss.h"

// Code that the losses of loss.h share: reductions over a row, sums over the rows, and their
// launch.
namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kFewClasses = 16;       // up to this many, eight lanes share a row; above it, a warp
constexpr int kRowsOfOneBlock = 256;  // more rows are worth a second launch
constexpr int kMostBlocks = 256;

struct Partial {
  double loss;
  int32_t correct;
};

// Reductions over the kLanes neighbouring threads that share a row; every lane receives the result.
template <int kLanes, typename A>
__device__ A lanes_sum(A value) {
#pragma unroll
  for (int off = kLanes / 2; off > 0; off /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, off, kLanes);
  }
  return value;
}

// The largest element of a row and its first index.
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

// The weight of the sample that a row belongs to.
template <typename T>
__device__ Accumulated<T> row_weight(const LossArgs<T>& args, int64_t row) {
  using A = Accumulated<T>;
  return args.sample_weights != nullptr ? A(args.sample_weights[row / args.timesteps]) : A(1);
}

template <typename T>
__device__ void write_score(const LossArgs<T>& args, double loss, int32_t correct) {
  const int32_t at = *args.tick;
  args.loss[at] = args.loss_scale * loss;
  if (args.correct != nullptr) args.correct[at] = correct;
}

// Rows in groups of kLanes threads. Row::loss() returns the loss of a row in all its lanes and
// writes its gradient. A grid of one block writes the score itself; otherwise each block leaves its
// part for loss_finish_kernel. All lanes of a warp make the same number of passes, because the
// shuffles need them all.
template <typename T, int kLanes, typename Row>
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
    const int64_t row = inside ? row0 + group : 0;  // a valid row, whose result is dropped
    Largest<Accumulated<T>> best{};
    if (Row::kTakesLargest || counts) {
      best = row_largest<kLanes>(args.x + row * args.classes, args.classes, lane);
    }
    const double here = Row::template loss<kLanes>(own, row, lane, best);
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

inline int loss_blocks(int64_t n, int lanes) {
  const int64_t groups = kThreads / lanes;
  return int(std::min<int64_t>((n + groups - 1) / groups, kMostBlocks));
}

template <typename T, int kLanes, typename Row>
cudaError_t launch_loss_lanes(const LossArgs<T>& args, void* workspace, cudaStream_t stream) {
  const bool one = args.loss != nullptr && args.n <= kRowsOfOneBlock;
  const int blocks = one ? 1 : std::max(1, loss_blocks(args.n, kLanes));
  auto* partial = static_cast<Partial*>(workspace);
  loss_kernel<T, kLanes, Row><<<blocks, kThreads, 0, stream>>>(args, partial);
  if (args.loss != nullptr && blocks > 1) {
    loss_finish_kernel<<<1, 32, 0, stream>>>(args, partial, blocks);
  }
  return cudaGetLastError();
}

template <typename Row, typename T>
cudaError_t launch_loss(const LossArgs<T>& args, void* workspace, cudaStream_t stream) {
  return args.classes <= kFewClasses ? launch_loss_lanes<T, 8, Row>(args, workspace, stream)
                                     : launch_loss_lanes<T, 32, Row>(args, workspace, stream);
}

}  // namespace
}  // namespace ridgeline::cuda
