// mlp_train_cluster: the resident trainer in one thread-block cluster.

#include <algorithm>

#include "ridgeline/cuda/mlp_train/launch.h"
#include "ridgeline/cuda/mlp_train/resident.cuh"

namespace ridgeline::cuda {
namespace mlp {
namespace {

template <typename T, int kSampleTiles, bool kMasters>
__global__ __launch_bounds__(kBlockThreads, 1) void mlp_train_cluster_kernel(
    const __grid_constant__ ResidentParams p) {
#if __CUDA_ARCH__ >= 900  // clusters; the layout refuses older GPUs
  extern __shared__ __align__(128) char shared[];
  using Exchange = ClusterExchange<T, kSampleTiles>;
  const int block = blockIdx.x;
  // Units past the last are read and never written: they must be 0.
  for (int i = threadIdx.x; i < int(p.plan.shared_bytes / 16); i += blockDim.x) {
    reinterpret_cast<uint4*>(shared)[i] = {0, 0, 0, 0};
  }
  __syncthreads();
  Exchange exchange(p, shared, block);
  if (threadIdx.x == 0) exchange.start();
  __syncthreads();
  cluster_sync();
  constexpr int kFirstGather = 32 * (Exchange::kWarpCount + Exchange::kUpdateWarps);
  if (threadIdx.x >= kFirstGather) {
    exchange.gather(threadIdx.x - kFirstGather);
  } else {
    ResidentTrainer<T, kSampleTiles, kMasters, Exchange>(p, shared, exchange).run();
  }
  __syncwarp();
  cluster_sync();  // no block leaves while others may still write to it
#endif
}

}  // namespace

cudaError_t launch_cluster(const MlpTrainArgs& args, const MlpTrainLayout& layout, void*,
                           cudaStream_t stream) {
  ResidentParams params{};
  params.args = args;
  const auto why =
      plan_resident(args.shape, layout.blocks, true, layout.shared_bytes, &params.plan);
  if (!why.empty()) return cudaErrorInvalidConfiguration;
  return dispatch(args.shape, [&](auto half, auto samples, auto masters) -> cudaError_t {
    using T = decltype(half);
    const auto kernel = mlp_train_cluster_kernel<T, samples.value, masters.value>;
    if (auto e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      int(params.plan.shared_bytes))) {
      return e;
    }
    if (auto e = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)) {
      return e;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = layout.blocks;
    config.blockDim = kBlockThreads;
    config.dynamicSmemBytes = params.plan.shared_bytes;
    config.stream = stream;
    cudaLaunchAttribute cluster[1];
    cluster[0].id = cudaLaunchAttributeClusterDimension;
    cluster[0].val.clusterDim = {unsigned(layout.blocks), 1, 1};
    config.attrs = cluster;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, params);
  });
}

}  // namespace mlp

MlpTrainLayout mlp_train_cluster_layout(const MlpTrainShape& shape, int blocks) {
  MlpTrainLayout layout;
  layout.how = MlpTrainHow::cluster;
  mlp::DeviceLimits limits;
  if (auto e = mlp::device_limits(&limits)) {
    layout.refusal = cudaGetErrorString(e);
    return layout;
  }
  if (limits.generation < 9) {
    layout.refusal = "clusters need compute capability 9.0 or later";
    return layout;
  }
  mlp::ResidentPlan plan;
  // 16 blocks are more than the portable 8, and twice the memory and tensor cores.
  layout.blocks = blocks > 0 ? std::min(blocks, 16) : 16;
  layout.refusal = mlp::plan_resident(shape, layout.blocks, true, limits.shared_bytes, &plan);
  layout.shared_bytes = plan.shared_bytes;
  return layout;
}

}  // namespace ridgeline::cuda
