#include "ridgeline/cuda/plain/activation.cuh"
#include "ridgeline/cuda/plain/head_grads.h"

namespace ridgeline::cuda {
namespace {

constexpr int kRows = kHeadRows, kThreads = kRows * 32;  // one warp per row

// The size of a block's partial results for the second launch, in the accumulator dtype: its part
// of dw, then of db.
__host__ __device__ int64_t part_size(int in, int out) { return int64_t(out) * (in + 1); }

struct Score {
  double loss;
  int32_t correct;
};

int blocks_of(int n) { return (n + kRows - 1) / kRows; }

template <typename A>
__device__ A warp_sum(A value) {
#pragma unroll
  for (int off = 16; off > 0; off /= 2) value += __shfl_xor_sync(~0u, value, off);
  return value;
}

// Sums the lanes' parts of the outputs' sums over the lanes; returns that of output lane / 2.
template <typename A>
__device__ A sum_of_output(A (&sums)[kMostHeadOutputs]) {
  static_assert(kMostHeadOutputs == 16);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 8; half > 0; half /= 2) {  // each step halves the sums that a lane keeps
    const bool upper = (lane & 2 * half) != 0;
#pragma unroll
    for (int o = 0; o < half; ++o) {
      const A sent = upper ? sums[o] : sums[o + half], kept = upper ? sums[o + half] : sums[o];
      sums[o] = kept + __shfl_xor_sync(~0u, sent, 2 * half);
    }
  }
  return sums[0] + __shfl_xor_sync(~0u, sums[0], 1);
}

// The softmax of one row, from the logit of output lane / 2. Returns the lane's part of the
// gradient, rounded to T. All lanes receive the score.
template <typename T, typename A>
__device__ A softmax_row(const HeadGradsArgs<T>& args, int label, A scale, A logit, Score& score) {
  const int mine = int(threadIdx.x) % 32 / 2;
  const bool inside = mine < args.out;
  A most = inside ? logit : -A(INFINITY);
  int best = mine;
#pragma unroll
  for (int off = 16; off > 1; off /= 2) {  // the first maximum
    const A other = __shfl_xor_sync(~0u, most, off);
    const int at = __shfl_xor_sync(~0u, best, off);
    if (other > most || (other == most && at < best)) most = other, best = at;
  }
  const A power = inside ? exp(logit - most) : A(0);
  A sum = power;
#pragma unroll
  for (int off = 16; off > 1; off /= 2) sum += __shfl_xor_sync(~0u, sum, off);
  const A at_label = __shfl_sync(~0u, logit, label < 0 ? 0 : 2 * label);
  score = {double(log(sum) + most - at_label), best == label};
  const A off = power / sum - (mine == label ? A(1) : A(0));
  return inside ? A(T(scale * off)) : A(0);
}

// One warp per row; the weights and the block's rows of x are first loaded into shared memory, all
// at once.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    head_grads_kernel(HeadGradsArgs<T> args, Accumulated<T>* parts, Score* scores) {
  using A = Accumulated<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ A slopes[kRows][kMostHeadOutputs];
  __shared__ Score rows[kRows];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, in = args.in;
  A *xs = reinterpret_cast<A*>(memory), *ws = xs + kRows * in;  // [kRows][in], [out][in]
  const int row = blockIdx.x * kRows + warp;
  const bool inside = row < args.n;
  // Issues all loads that are needed later at once.
  const int label = inside ? args.label[row] : -1;
  const A bias = args.b && lane < args.out ? args.b[lane] : A(0);
  const A scale = A(args.grad_scale * (args.grad_factor != nullptr ? *args.grad_factor : 1.0));
  A* x = xs + warp * in;
#pragma unroll 8
  for (int at = threadIdx.x; at < args.out * in; at += kThreads) ws[at] = A(args.w[at]);
#pragma unroll 8
  for (int j = lane; j < in; j += 32) x[j] = inside ? A(args.x[int64_t(row) * in + j]) : A(0);
  __syncthreads();
  A logits[kMostHeadOutputs] = {};
  for (int j = lane; j < in; j += 32) {
#pragma unroll
    for (int o = 0; o < kMostHeadOutputs; ++o) {
      if (o < args.out) logits[o] += x[j] * ws[o * in + j];
    }
  }
  const A sum = sum_of_output(logits) + __shfl_sync(~0u, bias, lane / 2);
  Score score;
  const A slope = softmax_row(args, label, scale, A(T(sum)), score);
#pragma unroll
  for (int o = 0; o < kMostHeadOutputs; ++o) logits[o] = __shfl_sync(~0u, slope, 2 * o);
  for (int j = lane; inside && j < in; j += 32) {
    A sum = A(0);
#pragma unroll
    for (int o = 0; o < kMostHeadOutputs; ++o) {
      if (o < args.out) sum += logits[o] * ws[o * in + j];
    }
    const A dx = A(T(sum));
    args.dx[int64_t(row) * in + j] = args.activation == ActivationFn::none
                                         ? T(sum)
                                         : T(dx * activation_slope(args.activation, x[j]));
  }
  if (lane == 0) rows[warp] = inside ? score : Score{0, 0};
  if (lane % 2 == 0) slopes[warp][lane / 2] = inside ? slope : A(0);
  __syncthreads();
  A* part = parts + blockIdx.x * part_size(in, args.out);
  for (int j = threadIdx.x; j < in; j += kThreads) {
    A column[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) column[r] = xs[r * in + j];
#pragma unroll
    for (int o = 0; o < kMostHeadOutputs; ++o) {
      if (o >= args.out) continue;
      A sum = A(0);
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum += slopes[r][o] * column[r];
      part[o * in + j] = sum;
    }
  }
  if (int(threadIdx.x) < args.out) {
    A sum = A(0);
#pragma unroll
    for (int r = 0; r < kRows; ++r) sum += slopes[r][threadIdx.x];
    part[args.out * in + threadIdx.x] = sum;
  }
  if (threadIdx.x != 0) return;
  Score all{0, 0};
  for (int r = 0; r < kRows; ++r) all.loss += rows[r].loss, all.correct += rows[r].correct;
  scores[blockIdx.x] = all;
}

// Adds the blocks' parts in order.
template <typename T>
__global__ void head_grads_sum_kernel(HeadGradsArgs<T> args, int blocks,
                                      const Accumulated<T>* parts, const Score* scores) {
  using A = Accumulated<T>;
  const int weights = args.out * args.in, at = blockIdx.x * blockDim.x + threadIdx.x;
  const int64_t size = part_size(args.in, args.out);
  if (at < weights + args.out) {
    A sum = A(0);
#pragma unroll 8
    for (int block = 0; block < blocks; ++block) sum += parts[block * size + at];
    if (at < weights) {
      args.dw.put(at, sum);
    } else if (args.db) {
      args.db.put(at - weights, sum);
    }
  }
  if (blockIdx.x != 0 || threadIdx.x >= 32) return;
  double loss = 0;
  int32_t correct = 0;
  for (int block = threadIdx.x; block < blocks; block += 32) {
    loss += scores[block].loss, correct += scores[block].correct;
  }
  loss = warp_sum(loss), correct = warp_sum(correct);
  if (threadIdx.x != 0) return;
  args.loss[*args.tick] = args.loss_scale * loss;
  if (args.correct != nullptr) args.correct[*args.tick] = correct;
}

size_t scores_bytes(int n) { return (size_t(blocks_of(n)) * sizeof(Score) + 255) / 256 * 256; }

template <typename T>
struct HeadWorkspace {
  Score* scores;
  Accumulated<T>* parts;

  HeadWorkspace(const HeadGradsArgs<T>& args, void* workspace)
      : scores(static_cast<Score*>(workspace)),
        parts(reinterpret_cast<Accumulated<T>*>(static_cast<unsigned char*>(workspace) +
                                                scores_bytes(args.n))) {}
};

}  // namespace

template <typename T>
cudaError_t launch_head_grads(const HeadGradsArgs<T>& args, void* workspace, cudaStream_t stream) {
  const HeadWorkspace<T> at(args, workspace);
  const int bytes = (kRows + args.out) * args.in * int(sizeof(Accumulated<T>));
  head_grads_kernel<T>
      <<<unsigned(blocks_of(args.n)), kThreads, bytes, stream>>>(args, at.parts, at.scores);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_head_grads_sum(const HeadGradsArgs<T>& args, void* workspace,
                                  cudaStream_t stream) {
  const HeadWorkspace<T> at(args, workspace);
  const auto sums = unsigned((part_size(args.in, args.out) + 127) / 128);
  head_grads_sum_kernel<T><<<sums, 128, 0, stream>>>(args, blocks_of(args.n), at.parts, at.scores);
  return cudaGetLastError();
}

size_t head_grads_workspace(int n, int in, int out, size_t width) {
  return scores_bytes(n) + size_t(blocks_of(n)) * size_t(part_size(in, out)) * width;
}

#define RIDGELINE_LAUNCH_HEAD_GRADS(T)                                                  \
  template cudaError_t launch_head_grads(const HeadGradsArgs<T>&, void*, cudaStream_t); \
  template cudaError_t launch_head_grads_sum(const HeadGradsArgs<T>&, void*, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_HEAD_GRADS)

}  // namespace ridgeline::cuda
