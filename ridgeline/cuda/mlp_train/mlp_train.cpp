#include "ridgeline/cuda/mlp_train/mlp_train.h"

#include "ridgeline/cuda/mlp_train/launch.h"

namespace ridgeline::cuda {

namespace mlp {

cudaError_t device_limits(DeviceLimits* limits) {
  int device = 0, shared = 0;
  if (auto e = cudaGetDevice(&device)) return e;
  if (auto e = cudaDeviceGetAttribute(&limits->blocks, cudaDevAttrMultiProcessorCount, device)) {
    return e;
  }
  if (auto e = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)) {
    return e;
  }
  limits->shared_bytes = size_t(shared);
  return cudaDeviceGetAttribute(&limits->generation, cudaDevAttrComputeCapabilityMajor, device);
}

}  // namespace mlp

cudaError_t mlp_train_launch(const MlpTrainArgs& args, const MlpTrainLayout& layout,
                             void* workspace, cudaStream_t stream) {
  if (!layout.refusal.empty()) return cudaErrorInvalidConfiguration;
  if (args.steps <= 0) return cudaSuccess;
  switch (layout.how) {
    case MlpTrainHow::cluster_replicated:
      return mlp::launch_cluster_replicated(args, layout, workspace, stream);
    case MlpTrainHow::grid_sharded:
      return mlp::launch_grid_sharded(args, layout, workspace, stream);
    case MlpTrainHow::weight_streaming:
      return mlp::launch_weight_streaming(args, layout, workspace, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace ridgeline::cuda
