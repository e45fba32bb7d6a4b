// One thread-block cluster, with the upper layers replicated in every block.

#include <algorithm>

#include "ridgeline/cuda/mlp_train/cluster_replicated.cuh"
#include "ridgeline/cuda/mlp_train/gather.cuh"
#include "ridgeline/cuda/mlp_train/launch.h"

namespace ridgeline::cuda {
namespace mlp {
namespace {

constexpr int kGatherThreads = 256;  // a slice of 64 inputs: 8 slots for each of 32 lanes

// Block (slice, step) gathers the slice's inputs of that step, for the steps from `done` on of the
// whole launch.
template <typename T>
__global__ void mlp_train_cluster_replicated_gather_kernel(
    const __grid_constant__ MlpTrainArgs args, int done, float2* rates, uint8_t* labels, uint4* x) {
  const int slice = blockIdx.x, t = blockIdx.y, thread = threadIdx.x;
  const int64_t base = *args.first + int64_t{done + t} * args.shape.batch;
  const int lane = thread & 31, j = thread >> 6, m = thread >> 5 & 1;
  const uint4 slot = gather_slot<T>(args, base, slice * kReplicatedSlice + (lane & 3) * 16 + 4 * j,
                                    16 * m + (lane >> 2));
  uint4* to = x + (int64_t{t} * gridDim.x + slice) * 2 * kGatherThreads + thread;
  to[0] = slot;
  to[kGatherThreads] = {transpose_8x8(slot.x), transpose_8x8(slot.y), transpose_8x8(slot.z),
                        transpose_8x8(slot.w)};
  if (slice > 0) return;
  if (thread < kReplicatedSamples) {
    labels[t * kReplicatedSamples + thread] =
        thread < args.shape.batch ? uint8_t(args.labels[args.order[base + thread]]) : 255;
  }
  if (thread == 0) {
    const double lr = args.lr[done + t];
    rates[t] = {float(1.0 - lr * args.weight_decay), float(lr / args.shape.batch)};
  }
}

template <typename T, int kHidden, bool kRelu, bool kDecays, bool kMasters>
__global__ __launch_bounds__(32 * kReplicatedWarps, 1) void mlp_train_cluster_replicated_kernel(
    const __grid_constant__ ClusterReplicatedParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // wgmma; the layout refuses other GPUs
  extern __shared__ __align__(1024) char shared[];
  ClusterReplicatedTrainer<T, kHidden, kRelu, kDecays, kMasters>(p, shared).run();
#else
  __trap();
#endif
}

template <typename T, int kHidden, bool kRelu, bool kDecays, bool kMasters>
cudaError_t launch(ClusterReplicatedParams params, cudaStream_t stream) {
  const auto kernel = mlp_train_cluster_replicated_kernel<T, kHidden, kRelu, kDecays, kMasters>;
  constexpr int kBytes = ClusterReplicatedMap<kHidden>::kBytes;
  if (auto e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes)) {
    return e;
  }
  if (auto e = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)) {
    return e;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = kReplicatedBlocks;
  config.blockDim = 32 * kReplicatedWarps;
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  cudaLaunchAttribute cluster[1];
  cluster[0].id = cudaLaunchAttributeClusterDimension;
  cluster[0].val.clusterDim = {kReplicatedBlocks, 1, 1};
  config.attrs = cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, params);
}

using Launch = cudaError_t (*)(ClusterReplicatedParams, cudaStream_t);

template <typename T, int kHidden, bool kRelu>
Launch launcher(bool masters) {
  // Master weights come from memory, so multiplying them by the decay factor costs no measurable
  // time.
  return masters ? launch<T, kHidden, kRelu, true, true> : launch<T, kHidden, kRelu, false, false>;
}
template <typename T, int kHidden>
Launch launcher(const MlpTrainShape& shape) {
  return shape.activation == ActivationFn::relu ? launcher<T, kHidden, true>(shape.masters)
                                                : launcher<T, kHidden, false>(shape.masters);
}

template <typename T>
cudaError_t launch_steps(const MlpTrainArgs& args, void* workspace, cudaStream_t stream) {
  const ClusterReplicatedInputs inputs(args.shape.sizes[0], args.shape.masters);
  char* base = static_cast<char*>(workspace);
  for (int done = 0; done < args.steps; done += kReplicatedSteps) {
    ClusterReplicatedParams params{};
    params.args = args;
    params.args.steps = std::min(kReplicatedSteps, args.steps - done);
    params.args.loss += done, params.args.correct += done;
    params.slices = inputs.slices;
    auto* rates = reinterpret_cast<float2*>(base);
    auto* labels = reinterpret_cast<uint8_t*>(base + inputs.labels);
    auto* x = reinterpret_cast<uint4*>(base + inputs.x);
    params.masters = reinterpret_cast<float*>(base + inputs.masters);
    params.rates = rates, params.labels = labels, params.x = x;
    mlp_train_cluster_replicated_gather_kernel<T>
        <<<dim3(inputs.slices, params.args.steps), kGatherThreads, 0, stream>>>(args, done, rates,
                                                                                labels, x);
    if (auto e = cudaGetLastError()) return e;
    const auto run =
        args.shape.layers == 3 ? launcher<T, 2>(args.shape) : launcher<T, 3>(args.shape);
    if (auto e = run(params, stream)) return e;
  }
  return cudaSuccess;
}

}  // namespace

std::string refuse_cluster_replicated(const MlpTrainShape& shape) {
  if (auto why = check_shape(shape); !why.empty()) return why;
  if (shape.layers < 3 || shape.layers > 4) return "takes 3 or 4 linear layers";
  if (shape.batch > kReplicatedSamples) return "takes batches up to 32";
  if (shape.sizes[0] > kReplicatedFeatures) return "takes up to 1024 features";
  if (shape.sizes[shape.layers] > kReplicatedClasses) return "takes up to 16 classes";
  for (int l = 1; l < shape.layers; ++l) {
    if (shape.sizes[l] > kReplicatedUnits) return "takes layers up to 128 wide";
  }
  return {};
}

cudaError_t launch_cluster_replicated(const MlpTrainArgs& args, const MlpTrainLayout&,
                                      void* workspace, cudaStream_t stream) {
  if (args.weight_decay != 0 && !args.shape.masters) return cudaErrorNotSupported;  // not compiled
  return args.shape.half == DType::fp16 ? launch_steps<__half>(args, workspace, stream)
                                        : launch_steps<__nv_bfloat16>(args, workspace, stream);
}

}  // namespace mlp

MlpTrainLayout mlp_train_cluster_replicated_layout(const MlpTrainShape& shape, int) {
  MlpTrainLayout layout;
  layout.how = MlpTrainHow::cluster_replicated;
  layout.refusal = mlp::refuse_cluster_replicated(shape);
  mlp::DeviceLimits limits;
  if (auto e = mlp::device_limits(&limits)) {
    layout.refusal = cudaGetErrorString(e);
    return layout;
  }
  if (limits.generation != 9) {
    layout.refusal = "needs compute capability 9.0";
    return layout;
  }
  layout.blocks = mlp::kReplicatedBlocks;
  layout.shared_bytes = shape.layers == 3 ? mlp::ClusterReplicatedMap<2>::kBytes
                                          : mlp::ClusterReplicatedMap<3>::kBytes;
  layout.workspace_bytes = mlp::ClusterReplicatedInputs(shape.sizes[0], shape.masters).bytes;
  return layout;
}

}  // namespace ridgeline::cuda
