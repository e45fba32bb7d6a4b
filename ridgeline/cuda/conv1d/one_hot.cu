#include <algorithm>

#include "ridgeline/cuda/conv/nan_max.cuh"
#include "ridgeline/cuda/conv1d/one_hot.h"
#include "ridgeline/cuda/conv1d/one_hot_moments.cuh"
#include "ridgeline/cuda/conv1d/packed.cuh"
#include "ridgeline/cuda/workspace.h"

namespace ridgeline::cuda {
namespace {

constexpr int kSliceBytes = 256;  // of channels per block: their weights fit in shared memory
constexpr int kParts = 16;        // threads per position of a slice, 16 bytes each
constexpr int kSlots = 24;        // windows that a block works on at once: 168 registers per thread
constexpr int kPerThread = 2;     // windows per thread whose gamma and beta stay in registers
constexpr int kBlockWindows = kSlots * kPerThread;
constexpr int kBlockThreads = kSlots * kParts;
constexpr int kSamples = 4;  // samples whose codes are fetched together

// table[slice, code, tap, channel of the slice]; zero for the code past the last symbol.
template <typename T>
__global__ void one_hot_table_kernel(OneHotBlockShape s, const T* w, T* table) {
  constexpr int kChannels = kSliceBytes / int{sizeof(T)};
  const int64_t count = int64_t(s.out) * s.taps * (s.symbols + 1);
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int channel = int(i % kChannels), tap = int(i / kChannels % s.taps);
    const int code = int(i / kChannels / s.taps % (s.symbols + 1));
    const int o = int(i / kChannels / (s.symbols + 1) / s.taps) * kChannels + channel;
    table[i] = code < s.symbols ? w[(int64_t(o) * s.symbols + code) * s.taps + tap] : T(0.0f);
  }
}

// Loads by a 32-bit address, so that the nine rows a window needs take half the registers.
__device__ inline uint4 load_shared(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address));
  return value;
}

// A block keeps the weights of one slice of channels in shared memory and walks over the samples;
// each thread keeps gamma and beta of its windows and channels in registers. blockIdx.x is the
// slice, blockIdx.y a range of windows, and blockIdx.z the first group of samples.
template <typename T, int kTaps>
__global__ void __launch_bounds__(kBlockThreads, 1)
    one_hot_norm_relu_pool_forward_kernel(OneHotBlockArgs<T> args, const T* table,
                                          const float2* stats) {
  constexpr int kReach = 3 + kTaps - 1;  // codes that a window reads
  constexpr int kCodes = 3 * kBlockWindows + kTaps - 1;
  constexpr int kChannels = kSliceBytes / int{sizeof(T)};
  extern __shared__ __align__(16) char shared[];
  __shared__ uint16_t code_rows[2][kSamples][kCodes];
  const OneHotBlockShape& s = args.shape;
  const int table_bytes = (s.symbols + 1) * kTaps * kSliceBytes;
  {
    const auto* from = reinterpret_cast<const uint4*>(table + int64_t(blockIdx.x) * kTaps *
                                                                  (s.symbols + 1) * kChannels);
    auto* to = reinterpret_cast<uint4*>(shared);
    for (int j = threadIdx.x; j < table_bytes / 16; j += kBlockThreads) to[j] = from[j];
  }
  const int part = threadIdx.x % kParts, slot = threadIdx.x / kParts;
  const int channel = int(blockIdx.x) * kChannels + part * kPacked<T>;
  const int first_window = int(blockIdx.y) * kBlockWindows;
  const int pitch = signal_pitch(s.windows());

  float bias[kPacked<T>];
#pragma unroll
  for (int c = 0; c < kPacked<T>; ++c) bias[c] = args.bias ? float(args.bias[channel + c]) : 0.0f;
  uint4 gamma[kPerThread][3], beta[kPerThread][3];
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int window = min(first_window + k * kSlots + slot, s.windows() - 1);
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      T *g = reinterpret_cast<T*>(&gamma[k][j]), *b = reinterpret_cast<T*>(&beta[k][j]);
#pragma unroll
      for (int c = 0; c < kPacked<T>; ++c) {
        const int64_t at = int64_t(channel + c) * s.steps() + 3 * window + j;
        g[c] = args.gamma[at];
        b[c] = args.beta[at];
      }
    }
  }

  const auto mine = uint32_t(__cvta_generic_to_shared(shared)) + uint32_t(part) * 16;
  const int groups = (s.n + kSamples - 1) / kSamples;
  constexpr int kFetch = (kSamples * kCodes + kBlockThreads - 1) / kBlockThreads;
  uint16_t fetched[kFetch];
  const auto fetch = [&](int group) {
#pragma unroll
    for (int f = 0; f < kFetch; ++f) {
      const int j = f * kBlockThreads + int(threadIdx.x);
      const int64_t sample = int64_t(group) * kSamples + j / kCodes;
      const int p = 3 * first_window + j % kCodes;
      fetched[f] = uint16_t(s.symbols);
      if (j < kSamples * kCodes && sample < s.n && p < s.length) {
        fetched[f] =
            uint16_t(code_at(s, args.codes, sample, set_index_of(s, args.codes, sample), p));
      }
    }
  };
  fetch(int(blockIdx.z));
  int buffer = 0;
  for (int group = blockIdx.z; group < groups; group += gridDim.z, buffer ^= 1) {
#pragma unroll
    for (int f = 0; f < kFetch; ++f) {
      const int j = f * kBlockThreads + int(threadIdx.x);
      if (j < kSamples * kCodes) code_rows[buffer][j / kCodes][j % kCodes] = fetched[f];
    }
    __syncthreads();
    if (group + int(gridDim.z) < groups) fetch(group + int(gridDim.z));
#pragma unroll 1
    for (int q = 0; q < kSamples; ++q) {
      const int64_t sample = int64_t(group) * kSamples + q;
      if (sample >= s.n) break;
      const float2 stat = stats[sample];
      const float scale = stat.y, shift = -stat.x * stat.y;
#pragma unroll
      for (int k = 0; k < kPerThread; ++k) {
        const int local = k * kSlots + slot;
        uint32_t rows[kReach];
#pragma unroll
        for (int j = 0; j < kReach; ++j) {
          rows[j] = mine + code_rows[buffer][q][3 * local + j] * (kTaps * kSliceBytes);
        }
        float best[kPacked<T>] = {};  // relu: at least zero
#pragma unroll
        for (int j = 0; j < 3; ++j) {
          float sum[kPacked<T>], value[kPacked<T>];
#pragma unroll
          for (int c = 0; c < kPacked<T>; ++c) sum[c] = bias[c];
#pragma unroll
          for (int u = 0; u < kTaps; ++u) {
            unpack<T>(load_shared(rows[j + u] + u * kSliceBytes), value);
#pragma unroll
            for (int c = 0; c < kPacked<T>; ++c) sum[c] += value[c];
          }
          float g[kPacked<T>];
          unpack<T>(gamma[k][j], g);
          unpack<T>(beta[k][j], value);
#pragma unroll
          for (int c = 0; c < kPacked<T>; ++c) {
            best[c] = nan_max(best[c], fmaf(fmaf(sum[c], scale, shift), g[c], value[c]));
          }
        }
        const int window = first_window + local;
        if (window < s.windows()) {
          *reinterpret_cast<uint4*>(args.y + (sample * pitch + window) * s.out + channel) =
              pack<T>(best);
        }
      }
    }
  }
}

template <typename T>
struct Workspace {
  T* table;
  OneHotMoments moments;
  float2* stats;
  size_t bytes;

  // Without a base this only counts the bytes.
  Workspace(const OneHotBlockShape& s, size_t width, void* base) {
    WorkspaceSlices slices(base);
    const size_t codes = size_t(s.symbols) + 1, taps = size_t(s.taps);
    table = static_cast<T*>(slices.take(size_t(s.out) * taps * codes * width));
    moments.column = slices.take_of<float>(codes * taps);
    moments.diagonal = slices.take_of<float>(codes * taps);
    moments.single = slices.take_of<float>(codes);
    moments.gram = slices.take_of<float>(size_t(s.filter()) * size_t(s.filter()));
    moments.pair = slices.take_of<float>((taps - 1) * codes * codes);
    moments.bias = slices.take_of<double>(2);
    stats = slices.take_of<float2>(size_t(s.n));
    bytes = slices.total();
  }
};

size_t moments_shared(const OneHotBlockShape& s) {
  const size_t codes = size_t(s.symbols) + 1, taps = size_t(s.taps);
  return ((taps - 1) * codes * codes + codes * taps + codes) * sizeof(float) +
         kMomentWarps * ((size_t(s.length) + 3) / 4 * 4);
}

size_t table_shared(const OneHotBlockShape& s) {
  return size_t(s.taps) * (size_t(s.symbols) + 1) * kSliceBytes;
}

constexpr size_t kMostShared = 220 * 1024;

template <typename T, int kTaps>
cudaError_t launch_taps(const OneHotBlockArgs<T>& args, void* workspace, int sms,
                        cudaStream_t stream) {
  const OneHotBlockShape& s = args.shape;
  const Workspace<T> space(s, sizeof(T), workspace);
  const auto moments = one_hot_moments_kernel<kTaps>;
  const auto forward = one_hot_norm_relu_pool_forward_kernel<T, kTaps>;
  const auto allow = [](auto kernel, size_t bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  };
  cudaError_t error = allow(moments, moments_shared(s));
  if (error == cudaSuccess) error = allow(forward, table_shared(s));
  if (error != cudaSuccess) return error;
  one_hot_table_kernel<T><<<sms, 256, 0, stream>>>(s, args.w, space.table);
  one_hot_columns_kernel<T><<<unsigned(s.filter() + s.taps + 8) / 8, 256, 0, stream>>>(
      s, args.w, args.bias, space.moments);
  one_hot_gram_kernel<T, kTaps>
      <<<dim3(unsigned(s.symbols), unsigned(s.filter() + 127) / 128), 128, 0, stream>>>(
          s, args.w, args.bias, space.moments);
  const int codes = s.symbols + 1;
  one_hot_pairs_kernel<<<unsigned((s.taps - 1) * codes * codes + codes + 255) / 256, 256, 0,
                         stream>>>(s, space.moments);
  const int blocks = std::min(sms, (s.n + kMomentWarps - 1) / kMomentWarps);
  moments<<<unsigned(blocks), kMomentWarps * 32, moments_shared(s), stream>>>(
      s, args.codes, space.moments, args.epsilon, space.stats);
  const int slices = s.out * int{sizeof(T)} / kSliceBytes;
  const int stretches = (s.windows() + kBlockWindows - 1) / kBlockWindows;
  const int groups = (s.n + kSamples - 1) / kSamples;
  const int walkers = std::clamp(sms / (slices * stretches), 1, groups);
  forward<<<dim3(unsigned(slices), unsigned(stretches), unsigned(walkers)), kBlockThreads,
            table_shared(s), stream>>>(args, space.table, space.stats);
  return cudaGetLastError();
}

}  // namespace

std::string refuse_one_hot_block(const OneHotBlockShape& s, size_t width, size_t shared) {
  if (s.taps != 7 && s.taps != 3) return "takes kernels of 3 and 7";
  if (s.steps() % 3 != 0) return "takes lengths divisible by 3";
  if (size_t(s.out) * width % kSliceBytes != 0) return "takes channels by 256 bytes";
  constexpr size_t kFixed = 4096;  // an upper bound of the static shared memory
  if (std::max(moments_shared(s), table_shared(s)) + kFixed > std::min(kMostShared, shared)) {
    return "the vocabulary does not fit shared memory";
  }
  return {};
}

size_t one_hot_block_workspace(const OneHotBlockShape& s, size_t width) {
  return Workspace<float>(s, width, nullptr).bytes;
}

template <typename T>
cudaError_t launch_one_hot_block(const OneHotBlockArgs<T>& args, void* workspace, int sms,
                                 cudaStream_t stream) {
  return args.shape.taps == 7 ? launch_taps<T, 7>(args, workspace, sms, stream)
                              : launch_taps<T, 3>(args, workspace, sms, stream);
}

template cudaError_t launch_one_hot_block(const OneHotBlockArgs<__nv_bfloat16>&, void*, int,
                                          cudaStream_t);
template cudaError_t launch_one_hot_block(const OneHotBlockArgs<__half>&, void*, int, cudaStream_t);
template cudaError_t launch_one_hot_block(const OneHotBlockArgs<float>&, void*, int, cudaStream_t);

}  // namespace ridgeline::cuda
