// Prepares the products of int8_split.h: gathers the bytes and splits the factors into digits.

#include "ridgeline/cuda/device/mbarrier.cuh"
#include "ridgeline/cuda/gemm/launch.h"
#include "ridgeline/cuda/int8_split/split.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kSide = 64;  // samples and features per block that gathers

__device__ void begin_kernel() {
#if __CUDA_ARCH__ >= 900
  wait_for_previous_kernel();
  allow_next_kernel();
#endif
}

// 16 bytes of a row from `column` on; 0 past its end.
__device__ uint4 load_bytes(const uint8_t* row, int column, int columns) {
  if (columns % 16 == 0 && reinterpret_cast<uintptr_t>(row) % 16 == 0) {
    if (column >= columns) return {0, 0, 0, 0};
    return *reinterpret_cast<const uint4*>(row + column);
  }
  uint32_t words[4] = {};
  for (int i = 0; i < 16; ++i) {
    if (column + i < columns) words[i / 4] |= uint32_t{row[column + i]} << (8 * (i % 4));
  }
  return {words[0], words[1], words[2], words[3]};
}

// Gathers samples and features from (row0, column0) on, plain and transposed, and the labels.
template <typename T>
__device__ void gather_block(const Int8SplitPrepare<T>& args, int row0, int column0) {
  const GatherArgs& gather = args.gather;
  __shared__ uint32_t tile[kSide][kSide / 4 + 1];
  const int thread = int(threadIdx.x), r = thread / 4, part = thread % 4;
  const int row = row0 + r;
  const int64_t first = *gather.first + int64_t(*gather.tick) * gather.n;
  uint4 bytes = {0, 0, 0, 0};
  if (row < gather.n) {
    const int64_t source = gather.order[first + row];
    bytes = load_bytes(gather.set + source * args.in, column0 + 16 * part, args.in);
    *reinterpret_cast<uint4*>(args.x + row * int8_split_pitch(args.in) + column0 + 16 * part) =
        bytes;
    if (column0 == 0 && part == 0) gather.label[row] = gather.labels[source];
  }
  tile[r][4 * part] = bytes.x, tile[r][4 * part + 1] = bytes.y;
  tile[r][4 * part + 2] = bytes.z, tile[r][4 * part + 3] = bytes.w;
  __syncthreads();
  const int column = column0 + r;
  if (column >= args.in) return;
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const uint32_t byte = tile[16 * part + i][r / 4] >> (8 * (r % 4)) & 0xff;
    words[i / 4] |= byte << (8 * (i % 4));
  }
  *reinterpret_cast<uint4*>(args.x_transposed + column * int8_split_pitch(gather.n) + row0 +
                            16 * part) = {words[0], words[1], words[2], words[3]};
}

// A warp splits a row of w into digits, four inputs per lane at a time.
template <typename T>
__device__ void split_row(const Int8SplitPrepare<T>& args, int row) {
  const int lane = int(threadIdx.x) % 32;
  const T* from = args.w + int64_t(row) * args.in;
  T most = T(0);
#pragma unroll 8
  for (int k = lane; k < args.in; k += 32) {
    const T size = fabs(from[k]);
    most = most < size || size != size ? size : most;  // NaN stays NaN
  }
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    const T other = __shfl_xor_sync(~0u, most, apart);
    most = most < other || other != other ? other : most;
  }
  const FixedPower<T> power = fixed_power(most);
  if (lane == 0) {
    args.w_up[row] = power.up;
    args.most[row] = 0;
  }
  const int64_t pitch = int8_split_pitch(args.in);
  const int first = row / kInt8SplitGroup * kInt8SplitGroup * kDigits<T> + row % kInt8SplitGroup;
  int8_t* to = args.w_digits + first * pitch;
  int sums[kDigits<T>] = {};
  for (int k = 4 * lane; k < args.in; k += 128) {
    uint32_t words[kDigits<T>] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const T v = k + i < args.in ? from[k + i] : T(0);
      for_each_digit(v, power.down, [&](int d, int8_t digit) {
        words[d] |= uint32_t{uint8_t(digit)} << (8 * i);
        sums[d] += digit;
      });
    }
#pragma unroll
    for (int d = 0; d < kDigits<T>; ++d) {
      *reinterpret_cast<uint32_t*>(to + d * kInt8SplitGroup * pitch + k) = words[d];
    }
  }
#pragma unroll
  for (int d = 0; d < kDigits<T>; ++d) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
      sums[d] += __shfl_xor_sync(~0u, sums[d], apart);
    }
    if (lane == d) {
      args.w_sums[first + d * kInt8SplitGroup] = sums[d];
      args.dz_sums[first + d * kInt8SplitGroup] = 0;
    }
  }
}

// The first blocks split w, the others gather.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    int8_split_prepare_kernel(Int8SplitPrepare<T> args, int split_blocks) {
  begin_kernel();
  const int block = int(blockIdx.x);
  if (block == 0 && threadIdx.x == 0) *args.rate = {args.lr[*args.gather.tick], 0};
  if (block < split_blocks) {
    const int row = block * kWarps + int(threadIdx.x) / 32;
    if (row < args.out) split_row(args, row);
    return;
  }
  const int columns = (args.in + kSide - 1) / kSide, at = block - split_blocks;
  gather_block(args, at / columns * kSide, at % columns * kSide);
}

constexpr int kSplitSamples = 128;  // samples per block that splits dz, by a group of outputs

template <typename T>
__global__ void __launch_bounds__(kThreads) int8_split_gradient_kernel(Int8SplitGradient<T> args) {
  begin_kernel();
  // Words of four samples; one extra word per row puts neighbouring outputs in different banks.
  __shared__ uint32_t tile[kDigits<T> * kInt8SplitGroup][kSplitSamples / 4 + 1];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int row0 = int(blockIdx.x) * kSplitSamples, out = int(blockIdx.y) * kInt8SplitGroup + lane;
  T most = T(0);
  if (out < args.out) {
    const OrderedBits<T> bits = args.most[out];
    memcpy(&most, &bits, sizeof(T));
  }
  const FixedPower<T> power = fixed_power(most);
  if (row0 == 0 && warp == 0 && out < args.out) args.up[out] = power.up;
  int sums[kDigits<T>] = {};
  for (int word = warp; word < kSplitSamples / 4; word += kWarps) {
    T v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row0 + 4 * word + i;
      v[i] = row < args.n && out < args.out ? args.dz[int64_t(row) * args.out + out] : T(0);
    }
    uint32_t words[kDigits<T>] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      for_each_digit(v[i], power.down, [&](int d, int8_t digit) {
        words[d] |= uint32_t{uint8_t(digit)} << (8 * i);
        sums[d] += digit;
      });
    }
#pragma unroll
    for (int d = 0; d < kDigits<T>; ++d) tile[d * kInt8SplitGroup + lane][word] = words[d];
  }
  if (args.sums != nullptr && out < args.out) {  // integers: the sum does not depend on the order
#pragma unroll
    for (int d = 0; d < kDigits<T>; ++d) {
      atomicAdd(args.sums + (int(blockIdx.y) * kDigits<T> + d) * kInt8SplitGroup + lane, sums[d]);
    }
  }
  __syncthreads();
  const int64_t pitch = int8_split_pitch(args.n);
  int8_t* to = args.digits + int64_t(blockIdx.y) * kInt8SplitGroup * kDigits<T> * pitch + row0;
  for (int i = warp; i < kDigits<T> * kInt8SplitGroup; i += kWarps) {
    *reinterpret_cast<uint32_t*>(to + i * pitch + 4 * lane) = tile[i][lane];
  }
}

}  // namespace

template <typename T>
cudaError_t launch_int8_split_prepare(const Int8SplitPrepare<T>& args, cudaStream_t stream) {
  const int split_blocks = ceil_div(args.out, kWarps);
  const int blocks = split_blocks + ceil_div(int(args.gather.n), kSide) * ceil_div(args.in, kSide);
  LaunchConfig launch(blocks, kThreads, 0, 1, /*overlap_previous=*/true);
  const cudaLaunchConfig_t config = launch.on(stream);
  return cudaLaunchKernelEx(&config, int8_split_prepare_kernel<T>, args, split_blocks);
}

template <typename T>
cudaError_t launch_int8_split_gradient(const Int8SplitGradient<T>& args, cudaStream_t stream) {
  LaunchConfig launch(ceil_div(args.n, kSplitSamples), kThreads, 0, 1, /*overlap_previous=*/true);
  cudaLaunchConfig_t config = launch.on(stream);
  config.gridDim.y = unsigned(ceil_div(args.out, kInt8SplitGroup));
  return cudaLaunchKernelEx(&config, int8_split_gradient_kernel<T>, args);
}

template cudaError_t launch_int8_split_prepare(const Int8SplitPrepare<float>&, cudaStream_t);
template cudaError_t launch_int8_split_prepare(const Int8SplitPrepare<double>&, cudaStream_t);
template cudaError_t launch_int8_split_gradient(const Int8SplitGradient<float>&, cudaStream_t);
template cudaError_t launch_int8_split_gradient(const Int8SplitGradient<double>&, cudaStream_t);

}  // namespace ridgeline::cuda
