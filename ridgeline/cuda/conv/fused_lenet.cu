#include "ridgeline/cuda/conv/fused_conv2.cuh"
#include "ridgeline/cuda/conv/fused_lenet.h"
#include "ridgeline/cuda/device/cluster_load.cuh"
#include "ridgeline/cuda/plain/activation.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kCluster = 8, kWarps = 16, kThreads = kWarps * 32;

// The shared memory that follows that of the convolutions.
template <typename T, typename Shape>
struct FusedLenetMemory {
  using Convs = FusedConv2Memory<T, Shape, 1>;
  static constexpr int kFeatures = Shape::kOut2 * Shape::kWindows;
  static constexpr int kSlice = (kFeatures + kCluster * 32 - 1) / (kCluster * 32) * 32;
  static constexpr int kPitch = kSlice + 8;  // puts the rows of eight images in different banks
  // The features of this block's image, [kCluster * kSlice].
  static constexpr int kOutputs = Convs::kTotal;
  static constexpr int kInputs = kOutputs + kCluster * kSlice * int(sizeof(T));  // [image][kPitch]
  static constexpr int kPartial = kInputs + kCluster * kPitch * int(sizeof(T));
  static constexpr int kHidden = kPartial + 2 * kFusedLenetMostHidden * kCluster * 4;
  static constexpr int kLogits = kHidden + kFusedLenetMostHidden * 4;
  static constexpr int kTotal = kLogits + kFusedLenetMostClasses * 4;
};

// Takes the image in shared memory through both layers to `outputs`.
template <typename T, typename Shape>
__device__ void run_convs(const FusedConv2Args<T>& args, std::byte* memory, T* outputs) {
  using Memory = FusedConv2Memory<T, Shape, 1>;
  using First = typename Shape::First;
  constexpr DeepShape kDeep = Shape::template deep<T>();
  const auto* packed_filters1 = reinterpret_cast<const uint4*>(memory + Memory::kPackedFilters1);
  const auto* packed_filters2 = reinterpret_cast<const uint32_t*>(memory + Memory::kPackedFilters2);
  const auto* bias = reinterpret_cast<const float*>(memory + Memory::kBias);
  std::byte *map = memory + Memory::kMap, *image = memory + Memory::kImage;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint4 b[First::template steps<T>()][First::kTileColumns / 2];
#pragma unroll
  for (int s = 0; s < First::template steps<T>(); ++s) {
#pragma unroll
    for (int p = 0; p < First::kTileColumns / 2; ++p) {
      b[s][p] = packed_filters1[(s * (First::kTileColumns / 2) + p) * 32 + lane];
    }
  }
#pragma unroll 1
  for (int tile = warp; tile < Shape::kTiles1; tile += kWarps) {
    first_windows<T, Shape::kOut1, Shape::kFilter1>(
        reinterpret_cast<const uint32_t*>(image), Shape::kW / Factor<T>::kPerWord,
        tile / Shape::kTilesX, tile % Shape::kTilesX, b, [&](int y, int x, int c, float most) {
          const float value = fast_activation<T>(args.activation1, most + bias[c]);
          const uint32_t offset = place<T>(y * kDeep.pitch + (x * Shape::kOut1 + c) * sizeof(T));
          *reinterpret_cast<T*>(map + offset) = Factor<T>::round(value);
        });
  }
  __syncthreads();
  constexpr int kTiles = 2;
#pragma unroll 1
  for (int first = warp * kTiles * 8; first < Shape::kWindows; first += kWarps * kTiles * 8) {
    deep_windows<T, Shape::kOut2 / 8, kTiles>(
        kDeep, shared_address(map), packed_filters2, first, Shape::kWindows,
        [&](int window) {
          return window / Shape::kOutW * 2 * kDeep.pitch +
                 window % Shape::kOutW * 2 * Shape::kOut1 * int(sizeof(T));
        },
        [&](int window, int c, float most) {
          outputs[c * Shape::kWindows + window] =
              T(fast_activation<T>(args.activation2, most + bias[Shape::kOut1 + c]));
        });
  }
}

// Multiplies this block's slice of the first linear layer's inputs by its weights, for all images
// of the cluster: partial[half of k][hidden][image].
template <typename T, typename Memory>
__device__ void multiply_slice(const FusedLenetArgs<T>& args, int rank, const T* inputs,
                               float* partial) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  constexpr int kTiles = kFusedLenetMostHidden / 16;  // warps split these, and two halves of k
  const int tile = warp % kTiles, half = warp / kTiles;
  constexpr int kSteps = Memory::kSlice / 32, kFeatures = Memory::kFeatures;
  const int first = half * (Memory::kSlice / 2) + lane % 4 * 2;  // within the slice
  const int row = tile * 16 + lane / 4;
  float acc[4] = {};
  if (tile * 16 < args.hidden) {
#pragma unroll 8
    for (int step = 0; step < kSteps; ++step) {
      const int k = first + step * 16;
      uint32_t a[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {  // rows past the last read the last one instead
        const int at = rank * Memory::kSlice + k + e / 2 * 8;
        const int from = min(row + e % 2 * 8, args.hidden - 1);
        a[e] = at < kFeatures
                   ? *reinterpret_cast<const uint32_t*>(args.w3 + int64_t(from) * kFeatures + at)
                   : 0;
      }
      const auto* b = reinterpret_cast<const uint32_t*>(inputs + lane / 4 * Memory::kPitch + k);
      Factor<T>::mma(acc, a, b[0], b[4]);
    }
  }
  float* to = partial + (half * kFusedLenetMostHidden + row) * kCluster + lane % 4 * 2;
  to[0] = acc[0], to[1] = acc[1];
  to[8 * kCluster] = acc[2], to[8 * kCluster + 1] = acc[3];
}

// Sums the partial products of all blocks into the hidden layer of this block's image.
template <typename T>
__device__ void add_shares(const FusedLenetArgs<T>& args, int rank, const float* partial,
                           float* hidden) {
  const int at = threadIdx.x;
  if (at >= args.hidden) return;
  const uint32_t mine = shared_address(partial + at * kCluster + rank);
  float shares[kCluster][2];
#pragma unroll
  for (int block = 0; block < kCluster; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t from = mine + half * kFusedLenetMostHidden * kCluster * 4;
      shares[block][half] = load_cluster(cluster_address(from, block));
    }
  }
  float sum = 0;
#pragma unroll
  for (int block = 0; block < kCluster; ++block) sum += shares[block][0] + shares[block][1];
  if (args.b3) sum += args.b3[at];
  hidden[at] = float(T(activation_value(args.activation3, float(T(sum)))));
}

template <typename T>
__device__ void last_layer(const FusedLenetArgs<T>& args, int64_t i, const float* hidden,
                           float* logits) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < args.classes) {
    float sum = 0;
    for (int k = lane; k < args.hidden; k += 32) {
      sum += hidden[k] * float(args.w4[warp * args.hidden + k]);
    }
#pragma unroll
    for (int off = 16; off > 0; off /= 2) sum += __shfl_xor_sync(~0u, sum, off);
    if (lane == 0) logits[warp] = float(T(sum + (args.b4 ? args.b4[warp] : 0.0f)));
  }
  __syncthreads();
  if (warp != 0) return;
  const bool inside = lane < args.classes;
  const float logit = inside ? logits[lane] : -INFINITY;
  float value = logit;
  if (args.softmax) {
    float most = logit;
#pragma unroll
    for (int off = 16; off > 0; off /= 2) most = nan_max(most, __shfl_xor_sync(~0u, most, off));
    const float power = inside ? expf(logit - most) : 0.0f;
    float sum = power;
#pragma unroll
    for (int off = 16; off > 0; off /= 2) sum += __shfl_xor_sync(~0u, sum, off);
    value = power / sum;
  }
  if (inside) args.y.put(i * args.classes + lane, value);
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(kThreads, 1)
    conv_net_fused_lenet_kernel(const FusedLenetArgs<T> args) {
#if __CUDA_ARCH__ >= 900
  using Convs = FusedConv2Memory<T, Shape, 1>;
  using Memory = FusedLenetMemory<T, Shape>;
  extern __shared__ __align__(128) std::byte memory[];
  T* outputs = reinterpret_cast<T*>(memory + Memory::kOutputs);
  T* inputs = reinterpret_cast<T*>(memory + Memory::kInputs);
  auto* partial = reinterpret_cast<float*>(memory + Memory::kPartial);
  auto* hidden = reinterpret_cast<float*>(memory + Memory::kHidden);
  auto* logits = reinterpret_cast<float*>(memory + Memory::kLogits);
  std::byte *image = memory + Convs::kImage, *raw = memory + Convs::kRaw;
  const FusedConv2Args<T>& convs = args.convs;
  const int rank = int(cluster_rank());
  int64_t i = blockIdx.x;  // the images of a cluster are consecutive
  const auto fetch = [&](int64_t at) {
    if (at < convs.source.n) fetch_image<T, Shape>(convs.source, at, raw, image);
    copy_async_commit();
  };
  fetch(i);
  arrange_first_weights<T, Shape::kOut1, Shape::kFilter1>(
      convs.w1, reinterpret_cast<uint32_t*>(memory + Convs::kPackedFilters1));
  arrange_deep_weights<T>(Shape::template deep<T>(), convs.w2, Shape::kOut2, Shape::kOut1,
                          reinterpret_cast<uint32_t*>(memory + Convs::kPackedFilters2));
  for (int o = threadIdx.x; o < Shape::kOut1 + Shape::kOut2; o += kThreads) {
    const MixedIn<T> b = o < Shape::kOut1 ? convs.b1 : convs.b2;
    reinterpret_cast<float*>(memory + Convs::kBias)[o] =
        b ? b[o < Shape::kOut1 ? o : o - Shape::kOut1] : 0.0f;
  }
  // Zeroes what no image writes: the space past the last feature, and all of it in blocks without
  // an image.
  for (int at = threadIdx.x; at < kCluster * Memory::kSlice; at += kThreads) outputs[at] = T(0.0f);

#pragma unroll 1
  for (int64_t first = i - rank; first < convs.source.n; first += gridDim.x, i += gridDim.x) {
    copy_async_wait<0>();
    __syncthreads();
    if (i < convs.source.n) {
      scale_image<T>(convs.source, raw, image, Shape::kPixels);
      __syncthreads();
      run_convs<T, Shape>(convs, memory, outputs);
    }
    cluster_sync();  // all images' features are ready
    fetch(i + gridDim.x);
    constexpr int kChunk = 16 / int(sizeof(T)), kChunks = Memory::kSlice / kChunk;
    for (int at = threadIdx.x; at < kCluster * kChunks; at += kThreads) {
      const int from = at / kChunks, k = at % kChunks * kChunk;
      *reinterpret_cast<uint4*>(inputs + from * Memory::kPitch + k) = load_cluster_16(
          cluster_address(shared_address(outputs + rank * Memory::kSlice + k), uint32_t(from)));
    }
    __syncthreads();
    multiply_slice<T, Memory>(args, rank, inputs, partial);
    cluster_sync();  // all partial products are ready, and all features have been read
    if (i < convs.source.n) add_shares(args, rank, partial, hidden);
    __syncthreads();
    if (i < convs.source.n) last_layer(args, i, hidden, logits);
  }
  cluster_sync();  // no other block reads this block's memory any more
#endif
}

}  // namespace

bool has_fused_lenet(const FusedConv2Shape& shape) {
  return shape == FusedConv2Shape{72, 72, 7, 12, 7, 24};
}

template <typename T>
cudaError_t launch_fused_lenet(const FusedLenetArgs<T>& args, int sms, cudaStream_t stream) {
  using Shape = FusedConv2<72, 72, 7, 12, 7, 24>;
  constexpr int kBytes = FusedLenetMemory<T, Shape>::kTotal;
  const auto kernel = conv_net_fused_lenet_kernel<T, Shape>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int64_t clusters = (args.convs.source.n + kCluster - 1) / kCluster;
  const int64_t most = sms / kCluster;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned((clusters < most ? clusters : most) * kCluster));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, args);
}

template cudaError_t launch_fused_lenet(const FusedLenetArgs<__nv_bfloat16>&, int, cudaStream_t);
template cudaError_t launch_fused_lenet(const FusedLenetArgs<__half>&, int, cudaStream_t);

}  // namespace ridgeline::cuda
