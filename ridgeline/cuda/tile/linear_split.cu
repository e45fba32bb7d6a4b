#include <algorithm>

#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/plain/activation.cuh"
#include "ridgeline/cuda/tile/linear_split.h"
#include "ridgeline/cuda/tile/mma_tf32_fp64.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kSide = 64;                        // the side of a tile of results
constexpr int kThreads = 512, kStages = 6;       // stages of 20 KB: 192 of k in flight
constexpr int kDepth = 32, kPitch = kDepth + 8;  // per stage; rows start eight banks apart
constexpr int kStage = 2 * kSide * kPitch;
constexpr int kUnit = 8;  // k of one product; shares are multiples of it
// Four warps take 32 x 32 sums each; the others take the same sums over other units of k.
constexpr int kGroups = 4, kSumsPitch = kSide + 8;
constexpr int kShared = kStages * kStage * 4;
static_assert(kGroups * kUnit == kDepth && kGroups * kSide * kSumsPitch * 4 <= kShared);
// The least k of a share that is worth the transfer of its sums through memory.
constexpr int kLeastShare = 128;

// How a layer is distributed.
struct Shares {
  int64_t tiles;
  int splits;  // of k

  Shares(int64_t n, int64_t in, int64_t out, int sms)
      : tiles((n + kSide - 1) / kSide * ((out + kSide - 1) / kSide)),
        splits(int(std::min<int64_t>(sms / tiles, in / kLeastShare))) {}
};

// A warp's sums over its unit of a stage. A lane's two values are neighbours, 2t and 2t + 1 instead
// of t and t + 4: both factors use the same permutation of k.
__device__ __forceinline__ void add_stage(double (&sums)[2][4][4], const float* stage, int depth) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = warp / 4 * kUnit;
  if (k >= depth) return;
  const float* x = stage + (warp % 2 * 32 + lane / 4) * kPitch + k + lane % 4 * 2;
  const float* w = stage + (kSide + warp / 2 % 2 * 32 + lane / 4) * kPitch + k + lane % 4 * 2;
  double b[4][2];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 column = *reinterpret_cast<const float2*>(w + j * 8 * kPitch);
    b[j][0] = column.x, b[j][1] = column.y;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float2 upper = *reinterpret_cast<const float2*>(x + i * 16 * kPitch);
    const float2 lower = *reinterpret_cast<const float2*>(x + (i * 16 + 8) * kPitch);
    const double a[4] = {upper.x, lower.x, upper.y, lower.y};
#pragma unroll
    for (int j = 0; j < 4; ++j) tile::mma_fp64(sums[i][j], a, b[j]);
  }
}

// Writes parts[split][n][out]. A block takes tile blockIdx.x and split blockIdx.y.
__global__ void __launch_bounds__(kThreads, 1)
    linear_split_kernel(LinearArgs<float> args, float* parts) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) float memory[];
  const int across = (args.out + kSide - 1) / kSide;
  const int row0 = int(blockIdx.x) / across * kSide, col0 = int(blockIdx.x) % across * kSide;
  const int64_t units = (args.in + kUnit - 1) / kUnit;
  const int begin = int(units * blockIdx.y / gridDim.y) * kUnit;
  const int end = min(int(units * (blockIdx.y + 1) / gridDim.y) * kUnit, args.in);
  const int stages = (end - begin + kDepth - 1) / kDepth;

  // A thread copies four values of a row of x, and of w.
  const int fetch_row = threadIdx.x / 8, fetch_k = threadIdx.x % 8 * 4;
  const bool x_there = row0 + fetch_row < args.n, w_there = col0 + fetch_row < args.out;
  const float* x = args.x + (x_there ? int64_t(row0 + fetch_row) * args.in : 0);
  const float* w = args.w + (w_there ? int64_t(col0 + fetch_row) * args.in : 0);
  const auto fetch = [&](int stage) {  // commits a group of copies even past the last stage
    if (stage < stages) {
      float* to = memory + stage % kStages * kStage + fetch_row * kPitch + fetch_k;
      const int k = begin + stage * kDepth + fetch_k;
      const int from = k < end ? k : 0;
      const auto copy = [&](float* at, const float* row, bool there) {
        copy_async_or_zero<16>(shared_address(at), row + from, there && k < end ? 16 : 0);
      };
      copy(to, x, x_there);
      copy(to + kSide * kPitch, w, w_there);
    }
    copy_async_commit();
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) fetch(stage);
  double sums[2][4][4] = {};
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // this stage has arrived, and all threads are done with the previous one
    fetch(stage + kStages - 1);
    add_stage(sums, memory + stage % kStages * kStage, end - begin - stage * kDepth);
  }
  copy_async_wait<0>();
  __syncthreads();  // all threads are done with the memory that the sums overwrite

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* mine = memory + (warp / 4 * kSide + warp % 2 * 32 + lane / 4) * kSumsPitch +
                warp / 2 % 2 * 32 + lane % 4 * 2;
#pragma unroll
  for (int e = 0; e < 16; ++e) {  // the upper and the lower rows of a product
    const double* pair = &sums[e / 8][e / 2 % 4][e % 2 * 2];
    *reinterpret_cast<float2*>(mine + (e / 8 * 16 + e % 2 * 8) * kSumsPitch + e / 2 % 4 * 8) = {
        float(pair[0]), float(pair[1])};
  }
  __syncthreads();
  parts += int64_t(blockIdx.y) * args.n * args.out;
  const int col = threadIdx.x % kSide;
#pragma unroll
  for (int row = threadIdx.x / kSide; row < kSide; row += kThreads / kSide) {
    float sum = memory[row * kSumsPitch + col];
#pragma unroll
    for (int g = 1; g < kGroups; ++g) sum += memory[(g * kSide + row) * kSumsPitch + col];
    if (row0 + row < args.n && col0 + col < args.out) {
      parts[int64_t(row0 + row) * args.out + col0 + col] = sum;
    }
  }
#endif
}

// y = f(parts, added in order, + b), with one thread per result.
__global__ void __launch_bounds__(256)
    linear_split_sum_kernel(LinearArgs<float> args, const float* parts, int splits) {
  const int64_t count = int64_t(args.n) * args.out, at = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (at >= count) return;
  float sum = args.b != nullptr ? args.b[at % args.out] : 0.0f;
#pragma unroll 16
  for (int split = 0; split < splits; ++split) sum += parts[split * count + at];
  args.y[at] = activation_value(args.activation, sum);
}

}  // namespace

const char* refuse_linear_split(int64_t n, int64_t in, int64_t out, int sms) {
  if (in % 4 != 0) return "takes inputs that come in fours";
  // With fewer splits there are enough tiles, or the sums are too short to split k.
  return Shares(n, in, out, sms).splits >= 4 ? "" : "takes few results over long sums only";
}

size_t linear_split_workspace(int64_t n, int64_t in, int64_t out, int sms) {
  return size_t(Shares(n, in, out, sms).splits) * size_t(n) * size_t(out) * 4;
}

cudaError_t launch_linear_split(const LinearArgs<float>& args, int sms, float* workspace,
                                cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(
      linear_split_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  if (error != cudaSuccess) return error;
  const Shares shares(args.n, args.in, args.out, sms);
  const dim3 grid(unsigned(shares.tiles), unsigned(shares.splits));
  linear_split_kernel<<<grid, kThreads, kShared, stream>>>(args, workspace);
  const int64_t count = int64_t(args.n) * args.out;
  linear_split_sum_kernel<<<unsigned((count + 255) / 256), 256, 0, stream>>>(args, workspace,
                                                                             shares.splits);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
