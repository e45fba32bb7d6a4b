#include <algorithm>

#include "ridgeline/cuda/conv/nan_max.cuh"
#include "ridgeline/cuda/conv1d/simt.h"
#include "ridgeline/cuda/device/async_copy.cuh"

// fp32 multiply-adds. A thread keeps 8 rows x 8 channels of results. For each input channel it
// reads the 8 + taps - 1 rows that its taps reach once, and then only the weights of each tap: four
// shared-memory reads per hundred multiply-adds.
namespace ridgeline::cuda {
namespace {

constexpr int kM = 128, kN = 128, kBlockThreads = 256;

template <int kTaps_, int kPool_>
struct SimtTile {
  static constexpr int kTaps = kTaps_, kPool = kPool_;
  static constexpr int kRows = kM / kPool * kPool;    // rows of the tile that are kept
  static constexpr int kDepth = kTaps <= 3 ? 16 : 8;  // input channels per stage
  static constexpr int kInputRows = kM + kTaps - 1;
  // Rows that a thread reads, rounded up to fours.
  static constexpr int kReach = (8 + kTaps - 1 + 3) / 4 * 4;
  static constexpr int kRowPitch = (kM - 8 + kReach + 7) / 8 * 8 + 4;
  static constexpr int kStages = 3;
  static constexpr int kRowFloats = kDepth * kRowPitch;
  static constexpr int kStageFloats = kRowFloats + kDepth * kTaps * kN;
  static constexpr int kStorePitch = kN / 2 + 4;
  static constexpr int kSmemBytes = kStages * kStageFloats * int{sizeof(float)};
  static_assert(kM * kStorePitch <= kStages * kStageFloats && kSmemBytes <= 113 * 1024);
};

// transposed[c, u, o] = w[o, c, u]
__global__ void conv1d_transpose_weights_fp32_kernel(const float* w, float* transposed,
                                                     int channels, int out, int taps) {
  const int64_t count = int64_t(taps) * out * channels;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int o = int(i % out), u = int(i / out % taps), c = int(i / out / taps);
    transposed[i] = w[(int64_t(o) * channels + c) * taps + u];
  }
}

struct SimtWork {
  const float *x, *transposed;
  float* y;
  MixedIn<float> bias;
  int rows, channels, out;
  bool relu;
};

template <typename Tile>
__device__ inline void load_stage(float* stage, const SimtWork& work, int first_row, int column,
                                  int channel) {
  constexpr int kDepth = Tile::kDepth;
  for (int j = threadIdx.x; j < Tile::kInputRows * kDepth; j += kBlockThreads) {
    const int c = j % kDepth, r = j / kDepth;
    const int row = min(first_row + r, work.rows - 1);  // results past the end are discarded
    copy_async_4(stage + c * Tile::kRowPitch + r,
                 work.x + int64_t(row) * work.channels + channel + c);
  }
  float* weights = stage + Tile::kRowFloats;
  for (int j = threadIdx.x; j < kDepth * Tile::kTaps * (kN / 4); j += kBlockThreads) {
    const int o = j % (kN / 4) * 4, tap = j / (kN / 4);  // tap: index over channel * taps + tap
    copy_async_16(weights + tap * kN + o,
                  work.transposed + (int64_t(channel) * Tile::kTaps + tap) * work.out + column + o);
  }
}

template <typename Tile>
__global__ void __launch_bounds__(kBlockThreads, 2)
    conv1d_forward_fp32_kernel(const SimtWork work) {
#if __CUDA_ARCH__ >= 800  // cp.async; the kernel refuses older GPUs
  constexpr int kTaps = Tile::kTaps, kReach = Tile::kReach, kStages = Tile::kStages;
  extern __shared__ __align__(16) float shared[];
  const int column = int(blockIdx.x) * kN, first_row = int(blockIdx.y) * Tile::kRows;
  // A warp covers 4 x 8 threads: its reads of rows and of weights are one 128-byte line each.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int m = (warp / 2 * 4 + lane / 8) * 8, n = (warp % 2 * 8 + lane % 8) * 4;
  const int chunks = work.channels / Tile::kDepth;
  float acc[8][8] = {};
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < chunks) {
      load_stage<Tile>(shared + s * Tile::kStageFloats, work, first_row, column, s * Tile::kDepth);
    }
    copy_async_commit();
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    const int ahead = chunk + kStages - 1;
    if (ahead < chunks) {
      load_stage<Tile>(shared + ahead % kStages * Tile::kStageFloats, work, first_row, column,
                       ahead * Tile::kDepth);
    }
    copy_async_commit();
    const float* rows = shared + chunk % kStages * Tile::kStageFloats;
    const float* weights = rows + Tile::kRowFloats + n;
#pragma unroll 1
    for (int c = 0; c < Tile::kDepth; ++c) {
      float a[kReach];
#pragma unroll
      for (int j = 0; j < kReach; j += 4) {
        *reinterpret_cast<float4*>(&a[j]) =
            *reinterpret_cast<const float4*>(rows + c * Tile::kRowPitch + m + j);
      }
#pragma unroll
      for (int u = 0; u < kTaps; ++u) {
        float b[8];
        const float* at = weights + (c * kTaps + u) * kN;
        *reinterpret_cast<float4*>(&b[0]) = *reinterpret_cast<const float4*>(at);
        *reinterpret_cast<float4*>(&b[4]) = *reinterpret_cast<const float4*>(at + kN / 2);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
#pragma unroll
          for (int j = 0; j < 8; ++j) acc[i][j] = fmaf(a[i + u], b[j], acc[i][j]);
        }
      }
    }
  }
  // Results go through shared memory, half of the channels at a time, so that windows can be
  // pooled.
  constexpr int kOutRows = Tile::kRows / Tile::kPool, kPitch = Tile::kStorePitch;
  const float least = work.relu ? 0.0f : -INFINITY;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    __syncthreads();
    float add[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      add[j] = work.bias ? work.bias[column + half * (kN / 2) + n + j] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float4 value;
      value.x = nan_max(acc[i][half * 4] + add[0], least);
      value.y = nan_max(acc[i][half * 4 + 1] + add[1], least);
      value.z = nan_max(acc[i][half * 4 + 2] + add[2], least);
      value.w = nan_max(acc[i][half * 4 + 3] + add[3], least);
      *reinterpret_cast<float4*>(shared + (m + i) * kPitch + n) = value;
    }
    __syncthreads();
    for (int task = threadIdx.x; task < kOutRows * (kN / 8); task += kBlockThreads) {
      const int r = task / (kN / 8), part = task % (kN / 8) * 4;
      const int64_t row = int64_t(blockIdx.y) * kOutRows + r;
      if (row >= work.rows / Tile::kPool) continue;
      const float* from = shared + r * Tile::kPool * kPitch + part;
      float4 best = *reinterpret_cast<const float4*>(from);
#pragma unroll
      for (int k = 1; k < Tile::kPool; ++k) {
        const float4 other = *reinterpret_cast<const float4*>(from + k * kPitch);
        best = {nan_max(best.x, other.x), nan_max(best.y, other.y), nan_max(best.z, other.z),
                nan_max(best.w, other.w)};
      }
      *reinterpret_cast<float4*>(work.y + row * work.out + column + half * (kN / 2) + part) = best;
    }
  }
#endif
}

template <int kTaps, int kPool>
cudaError_t launch_tile(const Conv1dArgs<float>& args, float* transposed, cudaStream_t stream) {
  using Tile = SimtTile<kTaps, kPool>;
  const auto kernel = conv1d_forward_fp32_kernel<Tile>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSmemBytes);
  if (error != cudaSuccess) return error;
  conv1d_transpose_weights_fp32_kernel<<<256, 256, 0, stream>>>(args.w, transposed, args.channels,
                                                                args.out, args.taps);
  const SimtWork work{args.x,        transposed, args.y,   args.bias, args.n * args.pitch,
                      args.channels, args.out,   args.relu};
  const dim3 grid(unsigned(args.out / kN), unsigned((work.rows + Tile::kRows - 1) / Tile::kRows));
  kernel<<<grid, kBlockThreads, Tile::kSmemBytes, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace

std::string refuse_conv1d_fp32(int pitch, int channels, int out, int taps, int pool) {
  if (taps != 3 && taps != 7) return "takes kernels of 3 and 7";
  if (pool != 1 && (pool != 3 || pitch % 3 != 0))
    return "takes pools of 3 over lengths divisible by 3";
  if (channels % 16 != 0) return "takes input channels by 16";
  if (out % kN != 0) return "takes output channels by 128";
  return {};
}

cudaError_t launch_conv1d_fp32(const Conv1dArgs<float>& args, void* workspace,
                               cudaStream_t stream) {
  auto* transposed = static_cast<float*>(workspace);
  if (args.taps == 7) {
    return args.pool == 3 ? launch_tile<7, 3>(args, transposed, stream)
                          : launch_tile<7, 1>(args, transposed, stream);
  }
  return args.pool == 3 ? launch_tile<3, 3>(args, transposed, stream)
                        : launch_tile<3, 1>(args, transposed, stream);
}

}  // namespace ridgeline::cuda
