#include <algorithm>

#include "ridgeline/cuda/conv1d/one_hot_grad.h"
#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/device/mma.cuh"
#include "ridgeline/cuda/plain/index.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kChannels = 64;  // per block
constexpr int kMostTaps = 8;   // one warp per tap
// The columns are the symbols, and the column of ones for the bias.
constexpr int kColumnTiles = 9, kColumns = 8 * kColumnTiles;
constexpr int kSteps = 64;  // positions per stage
constexpr int kStages = 4;
// Channels are 144 bytes apart, which puts the eight rows of a fragment in different banks.
constexpr int kPitch = kSteps + 8;
constexpr int kCodes = kSteps + kMostTaps;

template <typename T>
struct alignas(16) Stage {
  T dy[kChannels * kPitch];
  int32_t token[kCodes];
};

template <typename T>
constexpr uint32_t one() {
  return __is_same(T, __half) ? 0x3c00u : 0x3f80u;
}

__device__ inline void load_fragment(uint32_t (&a)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(shared_address(row)));
}

// Starts the copies of stage `tile` of the whole batch: kSteps positions of one sample.
template <typename T>
__device__ void load_stage(const OneHotGeometry& g, const int32_t* token, const T* dy, int tile,
                           Stage<T>& stage) {
  const int tiles = (g.steps() + kSteps - 1) / kSteps;
  const int64_t sample = tile / tiles;
  const int t0 = tile % tiles * kSteps, first = int(blockIdx.x) * kChannels;
  constexpr int kRun = 8;  // halves per copy
  for (int j = threadIdx.x; j < kChannels * (kSteps / kRun); j += blockDim.x) {
    const int channel = j / (kSteps / kRun), t = j % (kSteps / kRun) * kRun;
    const bool inside = t0 + t < g.steps();
    const T* from = dy + (sample * g.out + first + channel) * g.steps() + (inside ? t0 + t : 0);
    copy_async_or_zero<16>(shared_address(stage.dy + channel * kPitch + t), from, inside ? 16 : 0);
  }
  for (int j = threadIdx.x; j < kCodes; j += blockDim.x) {
    const bool inside = t0 + j < g.length;
    const int32_t* from = token + sample * g.length + (inside ? t0 + j : 0);
    copy_async_or_zero<4>(shared_address(stage.token + j), from, inside ? 4 : 0);
  }
}

// blockIdx.x selects 64 channels, blockIdx.y a share of the stages. Writes
// shares[share][channel][filter + 1].
template <typename T>
__global__ void __launch_bounds__(32 * kMostTaps)
    one_hot_conv1d_grad_w_tensor_kernel(OneHotGeometry g, const int32_t* token, const T* dy,
                                        float* shares) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) char shared[];
  auto* stages = reinterpret_cast<Stage<T>*>(shared);
  const int lane = threadIdx.x % 32, tap = threadIdx.x / 32;
  const int column = lane / 4, pair = lane % 4 * 2;
  const int64_t all = int64_t(g.n) * ((g.steps() + kSteps - 1) / kSteps);
  const int begin = int(all * blockIdx.y / gridDim.y),
            end = int(all * (blockIdx.y + 1) / gridDim.y);
  const bool counts = tap == 0 && column == 7;  // this lane holds the column of ones
  float acc[kChannels / 16][kColumnTiles][4] = {};
  for (int s = 0; s < kStages - 1; ++s) {
    if (begin + s < end) load_stage(g, token, dy, begin + s, stages[s]);
    copy_async_commit();
  }
  for (int tile = begin; tile < end; ++tile) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // the stage has arrived, and all threads have read the previous one
    const int ahead = tile + kStages - 1;
    if (ahead < end) load_stage(g, token, dy, ahead, stages[(ahead - begin) % kStages]);
    copy_async_commit();
    const Stage<T>& stage = stages[(tile - begin) % kStages];
#pragma unroll
    for (int k = 0; k < kSteps; k += 16) {
      uint32_t a[kChannels / 16][4];
#pragma unroll
      for (int m = 0; m < kChannels / 16; ++m) {
        load_fragment(a[m], stage.dy + (m * 16 + lane % 16) * kPitch + k + lane / 16 * 8);
      }
      int code[4];  // the distance of the codes of this thread's rows from its first column
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        code[j] = stage.token[k + pair + tap + j % 2 + j / 2 * 8] - column;
      }
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        const auto hit = [&](int j) { return code[j] == 8 * n ? one<T>() : 0u; };
        uint32_t b0 = hit(0) | hit(1) << 16, b1 = hit(2) | hit(3) << 16;
        if (n == kColumnTiles - 1 && counts) b0 = b1 = one<T>() * 0x10001u;
#pragma unroll
        for (int m = 0; m < kChannels / 16; ++m) mma_m16n8k16<T>(acc[m][n], a[m], b0, b1);
      }
    }
  }
  const int row = g.filter() + 1;
#pragma unroll
  for (int m = 0; m < kChannels / 16; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int channel = int(blockIdx.x) * kChannels + m * 16 + lane / 4 + e / 2 * 8;
        const int symbol = 8 * n + pair + e % 2;
        float* to = shares + (int64_t(blockIdx.y) * g.out + channel) * row;
        if (symbol < g.symbols) to[symbol * g.kernel + tap] = acc[m][n][e];
        if (symbol == kColumns - 1 && tap == 0) to[g.filter()] = acc[m][n][e];
      }
    }
  }
#endif
}

// One block per SM, because its sums take most of the registers.
int shares_of(const OneHotGeometry& g, int sms) {
  const int64_t stages = int64_t(g.n) * ((g.steps() + kSteps - 1) / kSteps);
  return int(std::clamp<int64_t>(sms / (g.out / kChannels), 1, stages));
}

}  // namespace

std::string refuse_one_hot_grad(const OneHotGeometry& g) {
  if (g.out % kChannels != 0) return "takes channels in 64s";
  if (g.kernel > kMostTaps) return "takes up to 8 taps";
  if (g.symbols >= kColumns) return "takes up to 71 symbols";
  if (g.steps() % 8 != 0) return "takes rows of whole 16 bytes";
  if (int64_t{g.n} * (g.steps() / kSteps + 1) > (1 << 30)) return "has too many positions";
  return {};
}

size_t one_hot_grad_tensor_workspace(const OneHotGeometry& g, int sms) {
  return size_t(shares_of(g, sms)) * size_t(g.out) * size_t(g.filter() + 1) * sizeof(float);
}

template <typename T>
cudaError_t launch_one_hot_grad_tensor(const OneHotGeometry& g, const int32_t* token, const T* dy,
                                       MixedOut<T> dw, MixedOut<T> db, void* workspace, int sms,
                                       cudaStream_t stream) {
  const int count = shares_of(g, sms);
  const size_t bytes = kStages * sizeof(Stage<T>);
  const auto kernel = one_hot_conv1d_grad_w_tensor_kernel<T>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (error != cudaSuccess) return error;
  auto* shares = static_cast<float*>(workspace);
  kernel<<<dim3(unsigned(g.out / kChannels), unsigned(count)), unsigned(32 * g.kernel), bytes,
           stream>>>(g, token, dy, shares);
  return launch_one_hot_grad_sum<T>(g, shares, count, dw, db, stream);
}

#define RIDGELINE_LAUNCH_ONE_HOT_GRAD(T)                                                           \
  template cudaError_t launch_one_hot_grad_tensor(const OneHotGeometry&, const int32_t*, const T*, \
                                                  MixedOut<T>, MixedOut<T>, void*, int,            \
                                                  cudaStream_t);
RIDGELINE_LAUNCH_ONE_HOT_GRAD(__nv_bfloat16)
RIDGELINE_LAUNCH_ONE_HOT_GRAD(__half)

}  // namespace ridgeline::cuda
