// mlp_train_grid: weights in L2 and HBM.

#include <algorithm>

#include "ridgeline/cuda/mlp_train/launch.h"
#include "ridgeline/cuda/mlp_train/weight_streaming.cuh"

namespace ridgeline::cuda {
namespace mlp {
namespace {

template <typename T, int kSampleTiles, bool kMasters, int kParts>
__global__ __launch_bounds__(kBlockThreads, 1) void mlp_train_weight_streaming_kernel(
    const __grid_constant__ WeightStreamingParams p) {
#if __CUDA_ARCH__ >= 800  // mma of 16 x 8 x 16, cp.async; the layout refuses older GPUs
  extern __shared__ __align__(128) char shared[];
  // Own units past the last are read but may never be written, so they are zeroed.
  for (int i = threadIdx.x; i < int(p.plan.shared_bytes / 16); i += blockDim.x) {
    reinterpret_cast<uint4*>(shared)[i] = {0, 0, 0, 0};
  }
  __syncthreads();
  WeightStreamingTrainer<T, kSampleTiles, kMasters, kParts>(p, shared).run();
#endif
}

}  // namespace

cudaError_t launch_weight_streaming(const MlpTrainArgs& args, const MlpTrainLayout& layout,
                                    void* workspace, cudaStream_t stream) {
  WeightStreamingParams params{};
  params.args = args;
  const auto why =
      plan_weight_streaming(args.shape, layout.blocks, layout.shared_bytes, &params.plan);
  if (!why.empty()) return cudaErrorInvalidConfiguration;
  params.workspace = static_cast<char*>(workspace);
  if (auto e = cudaMemsetAsync(workspace, 0, params.plan.zeroed_bytes, stream)) return e;
  return dispatch(args.shape, [&](auto half, auto samples, auto masters) -> cudaError_t {
    using T = decltype(half);
    constexpr int kSampleTiles = samples.value;
    constexpr bool kMasters = masters.value;
    if constexpr (16 * kSampleTiles > kWeightStreamingMaxBatch) {
      return cudaErrorInvalidConfiguration;
    } else {
      constexpr int kMost = weight_streaming_parts(4, kSampleTiles, kMasters);
      const auto kernel = params.plan.parts == kMost
                              ? mlp_train_weight_streaming_kernel<T, kSampleTiles, kMasters, kMost>
                              : mlp_train_weight_streaming_kernel<T, kSampleTiles, kMasters, 2>;
      if (auto e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        int(params.plan.shared_bytes))) {
        return e;
      }
      void* arguments[] = {&params};
      return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), layout.blocks,
                                         kBlockThreads, arguments, params.plan.shared_bytes,
                                         stream);
    }
  });
}

}  // namespace mlp

MlpTrainLayout mlp_train_weight_streaming_layout(const MlpTrainShape& shape, int blocks) {
  MlpTrainLayout layout;
  layout.how = MlpTrainHow::weight_streaming;
  mlp::DeviceLimits limits;
  if (auto e = mlp::device_limits(&limits)) {
    layout.refusal = cudaGetErrorString(e);
    return layout;
  }
  if (limits.generation < 8) {
    layout.refusal = "needs compute capability 8.0 or later";
    return layout;
  }
  const int most = blocks > 0 ? std::min(blocks, limits.blocks) : limits.blocks;
  int used = 1;
  for (int l = 1; l < shape.layers && l <= kMlpMaxLayers; ++l) {
    const int tiles = (shape.sizes[l] + 15) / 16, each = (tiles + most - 1) / most;
    if (each > 0) used = std::max(used, (tiles + each - 1) / each);
  }
  layout.blocks = used;
  mlp::WeightStreamingPlan plan;
  layout.refusal = mlp::plan_weight_streaming(shape, used, limits.shared_bytes, &plan);
  layout.shared_bytes = plan.shared_bytes;
  layout.workspace_bytes = plan.workspace_bytes;
  return layout;
}

}  // namespace ridgeline::cuda
