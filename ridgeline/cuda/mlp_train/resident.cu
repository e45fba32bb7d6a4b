// mlp_train_grid, weights on chip: the resident trainer over the whole GPU.

#include <algorithm>

#include "ridgeline/cuda/mlp_train/launch.h"
#include "ridgeline/cuda/mlp_train/resident.cuh"

namespace ridgeline::cuda {
namespace mlp {
namespace {

template <typename T, int kSampleTiles, bool kMasters>
__global__ __launch_bounds__(kBlockThreads, 1) void mlp_train_resident_kernel(
    const __grid_constant__ ResidentParams p) {
#if __CUDA_ARCH__ >= 800  // mma of 16 x 8 x 16; the layout refuses older GPUs
  extern __shared__ __align__(128) char shared[];
  using Exchange = GridExchange<T, kSampleTiles>;
  Exchange exchange(p, shared, blockIdx.x);
  constexpr int kFirstGather = 32 * (Exchange::kWarpCount + Exchange::kUpdateWarps);
  if (threadIdx.x >= kFirstGather) {
    exchange.gather(threadIdx.x - kFirstGather);
  } else {
    ResidentTrainer<T, kSampleTiles, kMasters, Exchange>(p, shared, exchange).run();
  }
#endif
}

}  // namespace

cudaError_t launch_resident(const MlpTrainArgs& args, const MlpTrainLayout& layout, void* workspace,
                            cudaStream_t stream) {
  ResidentParams params{};
  params.args = args;
  const auto why =
      plan_resident(args.shape, layout.blocks, false, layout.shared_bytes, &params.plan);
  if (!why.empty()) return cudaErrorInvalidConfiguration;
  params.counter = static_cast<uint32_t*>(workspace);
  params.exchange = static_cast<char*>(workspace) + kCounterBytes;
  params.private_part = params.exchange + params.plan.exchange_bytes;
  if (auto e = cudaMemsetAsync(workspace, 0, kCounterBytes + params.plan.exchange_bytes, stream)) {
    return e;
  }
  return dispatch(args.shape, [&](auto half, auto samples, auto masters) -> cudaError_t {
    using T = decltype(half);
    const auto kernel = mlp_train_resident_kernel<T, samples.value, masters.value>;
    if (auto e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      int(params.plan.shared_bytes))) {
      return e;
    }
    void* arguments[] = {&params};
    return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), layout.blocks,
                                       kBlockThreads, arguments, params.plan.shared_bytes, stream);
  });
}

}  // namespace mlp

MlpTrainLayout mlp_train_resident_layout(const MlpTrainShape& shape, int blocks) {
  MlpTrainLayout layout;
  layout.how = MlpTrainHow::resident;
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
  // No more blocks than own something.
  int used = 1;
  for (int l = 1; l < shape.layers && l <= kMlpMaxLayers; ++l) {
    const int tiles = (shape.sizes[l] + 7) / 8, each = (tiles + most - 1) / most;
    if (each > 0) used = std::max(used, (tiles + each - 1) / each);
  }
  layout.blocks = used;
  mlp::ResidentPlan plan;
  layout.refusal = mlp::plan_resident(shape, used, false, limits.shared_bytes, &plan);
  layout.shared_bytes = plan.shared_bytes;
  layout.workspace_bytes =
      mlp::kCounterBytes + plan.exchange_bytes + plan.private_bytes * size_t(used);
  return layout;
}

}  // namespace ridgeline::cuda
