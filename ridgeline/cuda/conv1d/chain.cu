#include <algorithm>

#include "ridgeline/cuda/conv1d/chain.cuh"

namespace ridgeline::cuda {
namespace {

// The offset of a weight: stages of [128 results][32 channels], swizzled as wgmma reads rows of 64
// bytes.
template <typename T>
__device__ inline void arrange_weight(const Conv1dChainArgs<T>& args, T* to, int64_t i) {
  const int inside = int(i % (Chain::kStageBytes / 2)), row = inside / Chain::kStageK;
  const int vec8 = inside % Chain::kStageK / 8 ^ row / 2 % 4;
  int stage = int(i / (Chain::kStageBytes / 2));
  const int part = stage % 2, tap = stage / 2 % Chain::kTaps;
  const int chunk = stage / (2 * Chain::kTaps) % Chain::kChunks;
  stage /= Chain::kStagesPerPass;
  const int out = stage % Chain::kPasses * 128 + row, layer = stage / Chain::kPasses;
  const int channel = chunk * 64 + part * Chain::kStageK + vec8 * 8 + inside % 8;
  to[i] = args.w[size_t(layer)][(out * Chain::kChannels + channel) * Chain::kTaps + tap];
}

// gamma and beta of the pair of positions and the two channels that a thread's accumulators hold:
// the second pass first, two groups of eight columns per stage, 16 bytes per thread for each.
template <typename T>
__device__ inline void arrange_norm(const Conv1dChainArgs<T>& args, int left, uint4* to, int i) {
  const int thread = i % Chain::kMultiplying, lane = thread % 32;
  const int eight = i / Chain::kMultiplying % Chain::kEights;
  const int pass = 1 - i / Chain::kMultiplying / Chain::kEights;
  const int channel = pass * 128 + thread / 32 * 16 + lane / 4;
  const int position = 8 * eight + lane % 4 * 2;
  T values[8];
  // The order is gamma, gamma, beta, beta, then the same for the channel eight further.
  for (int k = 0; k < 8; ++k) {
    const int at = position + k % 2;
    const T* from = k / 2 % 2 == 0 ? args.gamma : args.beta;
    values[k] = at < left ? from[(channel + k / 4 * 8) * left + at] : T(0.0f);
  }
  to[i] = *reinterpret_cast<const uint4*>(values);
}

template <typename T>
__global__ void conv1d_chain_arrange_kernel(const Conv1dChainArgs<T> args, int left, T* weights,
                                            uint4* norm, float* biases) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < int64_t{args.layers} * (Chain::kLayerBytes / 2); i += step) {
    arrange_weight(args, weights, i);
  }
  for (int64_t i = first; i < Chain::kNormBytes / 16; i += step) {
    arrange_norm(args, left, norm, int(i));
  }
  for (int64_t i = first; i < args.layers * Chain::kChannels; i += step) {
    const MixedIn<T>& bias = args.bias[i / Chain::kChannels];
    biases[i] = bias ? float(bias[i % Chain::kChannels]) : 0.0f;
  }
}

}  // namespace

std::string refuse_conv1d_chain(int length, int layers) {
  if (signal_pitch(length) != Chain::kPitch) return "takes 97 to 112 positions";
  if (layers < 1 || layers > kMostChained) return "takes one to four convolutions";
  return {};
}

size_t conv1d_chain_workspace(int layers) {
  return size_t(layers) * (Chain::kLayerBytes + Chain::kChannels * sizeof(float)) +
         Chain::kNormBytes;
}

template <typename T>
std::function<cudaError_t(cudaStream_t)> prepare_conv1d_chain(const Conv1dChainArgs<T>& args,
                                                              void* workspace, int sms) {
  char* weights = static_cast<char*>(workspace);
  char* norm = weights + args.layers * Chain::kLayerBytes;
  const CUtensorMap map_x =
      make_tensor_map(args.x, int64_t{args.n} * Chain::kPitch, Chain::kChannels, Chain::kChannels,
                      Chain::kColumns, kStageDepth<T>);
  ChainWork work;
  work.n = args.n;
  work.tiles = (args.n + Chain::kSamples - 1) / Chain::kSamples;
  work.layers = args.layers;
  work.left = args.left();
  work.epsilon = args.epsilon;
  work.stages = weights;
  work.biases = reinterpret_cast<const float*>(norm + Chain::kNormBytes);
  const auto kernel = conv1d_chain_norm_pool_wgmma_kernel<T>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Chain::kSmemBytes);
  return [=](cudaStream_t stream) {
    if (error != cudaSuccess) return error;
    conv1d_chain_arrange_kernel<T><<<4 * sms, 256, 0, stream>>>(
        args, work.left, reinterpret_cast<T*>(weights), reinterpret_cast<uint4*>(norm),
        reinterpret_cast<float*>(norm + Chain::kNormBytes));
    kernel<<<std::min(sms, work.tiles), Chain::kThreads, Chain::kSmemBytes, stream>>>(map_x, work,
                                                                                      args.y);
    return cudaGetLastError();
  };
}

template std::function<cudaError_t(cudaStream_t)> prepare_conv1d_chain(
    const Conv1dChainArgs<__nv_bfloat16>&, void*, int);
template std::function<cudaError_t(cudaStream_t)> prepare_conv1d_chain(
    const Conv1dChainArgs<__half>&, void*, int);

}  // namespace ridgeline::cuda
