// mlp_train_grid_sharded: the launches, and the gathering of inputs before them.

#include <algorithm>

#include "ridgeline/cuda/mlp_train/gather.cuh"
#include "ridgeline/cuda/mlp_train/grid_sharded.cuh"
#include "ridgeline/cuda/mlp_train/launch.h"

namespace ridgeline::cuda {
namespace mlp {
namespace {

constexpr int kGatherThreads = 64;  // a tile of 16 inputs and 32 samples

// Block (tile, step) gathers a tile of the inputs of that step, for the steps from `done` on of the
// whole launch.
template <typename T>
__global__ void mlp_train_grid_sharded_gather_kernel(const __grid_constant__ MlpTrainArgs args,
                                                     int done, float2* rates, uint8_t* labels,
                                                     uint4* x) {
  const int tile = blockIdx.x, t = blockIdx.y, thread = threadIdx.x;
  const int64_t base = *args.first + int64_t{done + t} * args.shape.batch;
  const int chunk = tile * kGatherThreads + thread;
  x[int64_t{t} * gridDim.x * kGatherThreads + chunk] = gather_chunk<T, 2>(args, base, chunk);
  if (tile > 0) return;
  if (thread < kGridShardedSamples) {
    labels[t * kGridShardedSamples + thread] =
        thread < args.shape.batch ? uint8_t(args.labels[args.order[base + thread]]) : 255;
  }
  if (thread == 0) {
    const double lr = args.lr[done + t];
    rates[t] = {float(1.0 - lr * args.weight_decay), float(lr / args.shape.batch)};
  }
}

template <typename T, int kHidden, int kTiles, bool kMasters>
__global__ __launch_bounds__(32 * kGridShardedWarps, 1) void mlp_train_grid_sharded_kernel(
    const __grid_constant__ GridShardedParams p) {
#if __CUDA_ARCH__ >= 800  // mma of 16 x 8 x 16; the layout refuses older GPUs
  extern __shared__ __align__(128) char shared[];
  GridShardedTrainer<T, kHidden, kTiles, kMasters>(p, shared).run();
#endif
}

template <typename T, int kHidden, int kTiles, bool kMasters>
cudaError_t launch(GridShardedParams params, int blocks, cudaStream_t stream) {
  const auto kernel = mlp_train_grid_sharded_kernel<T, kHidden, kTiles, kMasters>;
  constexpr int kBytes = GridShardedMap<kHidden, kTiles, kMasters>::kBytes;
  if (auto e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes)) {
    return e;
  }
  void* arguments[] = {&params};
  return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), blocks,
                                     32 * kGridShardedWarps, arguments, kBytes, stream);
}

using Launch = cudaError_t (*)(GridShardedParams, int, cudaStream_t);

template <typename T, int kHidden>
Launch launcher(const MlpTrainShape& shape, int unit_tiles) {
  if (unit_tiles > 2 * kGridShardedWarps) {
    return shape.masters ? launch<T, kHidden, 4, true> : launch<T, kHidden, 4, false>;
  }
  return shape.masters ? launch<T, kHidden, 2, true> : launch<T, kHidden, 2, false>;
}

template <typename T>
cudaError_t launch_steps(const MlpTrainArgs& args, int blocks, void* workspace,
                         cudaStream_t stream) {
  const GridShardedPlaces places(args.shape);
  char* base = static_cast<char*>(workspace);
  auto* rates = reinterpret_cast<float2*>(base + places.rates);
  auto* labels = reinterpret_cast<uint8_t*>(base + places.labels);
  auto* x = reinterpret_cast<uint4*>(base + places.x);
  const auto run = args.shape.layers == 3 ? launcher<T, 2>(args.shape, places.unit_tiles)
                                          : launcher<T, 3>(args.shape, places.unit_tiles);
  for (int done = 0; done < args.steps; done += kGridShardedSteps) {
    GridShardedParams params{};
    params.args = args;
    params.args.steps = std::min(kGridShardedSteps, args.steps - done);
    params.args.loss += done, params.args.correct += done;
    params.rates = rates, params.labels = labels, params.x = x;
    params.exchange = base;
    params.matrix = places.matrix;
    params.input_tiles = places.input_tiles;
    if (auto e = cudaMemsetAsync(base, 0xff, places.exchanged(), stream)) return e;
    mlp_train_grid_sharded_gather_kernel<T>
        <<<dim3(places.input_tiles, params.args.steps), kGatherThreads, 0, stream>>>(
            args, done, rates, labels, x);
    if (auto e = cudaGetLastError()) return e;
    if (auto e = run(params, blocks, stream)) return e;
  }
  return cudaSuccess;
}

}  // namespace

GridShardedPlaces::GridShardedPlaces(const MlpTrainShape& shape) {
  const int widest = *std::max_element(shape.sizes + 1, shape.sizes + shape.layers);
  input_tiles = (shape.sizes[0] + 15) / 16;
  unit_tiles = (widest + 15) / 16;
  matrix = size_t(unit_tiles) * kGridShardedTileBytes;
  rates = matrix * kGridShardedRing * size_t(shape.layers);  // y of each hidden layer, and dy(1)
  labels = rates + kGridShardedSteps * sizeof(float2);
  x = labels + kGridShardedSteps * kGridShardedSamples;
  bytes = x + size_t(kGridShardedSteps) * input_tiles * kGridShardedTileBytes;
}

std::string refuse_grid_sharded(const MlpTrainShape& shape) {
  if (auto why = check_shape(shape); !why.empty()) return why;
  if (shape.layers < 3 || shape.layers > 4) return "takes 3 or 4 linear layers";
  if (shape.batch > kGridShardedSamples) return "takes batches up to 32";
  if (shape.sizes[0] > 16 * kGridShardedInputTiles) return "takes up to 1024 features";
  if (shape.sizes[shape.layers] > kGridShardedClasses) return "takes up to 16 classes";
  for (int l = 1; l < shape.layers; ++l) {
    if (shape.sizes[l] > 1024) return "takes layers up to 1024 wide";
    if (shape.masters && shape.sizes[l] > 512 &&
        shape.sizes[shape.layers] > kGridShardedTightClasses) {
      return "takes up to 10 classes where layers over 512 wide have masters";
    }
  }
  return {};
}

cudaError_t launch_grid_sharded(const MlpTrainArgs& args, const MlpTrainLayout& layout,
                                void* workspace, cudaStream_t stream) {
  return args.shape.half == DType::fp16
             ? launch_steps<__half>(args, layout.blocks, workspace, stream)
             : launch_steps<__nv_bfloat16>(args, layout.blocks, workspace, stream);
}

}  // namespace mlp

MlpTrainLayout mlp_train_grid_sharded_layout(const MlpTrainShape& shape, int) {
  MlpTrainLayout layout;
  layout.how = MlpTrainHow::grid_sharded;
  mlp::DeviceLimits limits;
  if (auto e = mlp::device_limits(&limits)) {
    layout.refusal = cudaGetErrorString(e);
    return layout;
  }
  if (layout.refusal = mlp::refuse_grid_sharded(shape); !layout.refusal.empty()) return layout;
  const mlp::GridShardedPlaces places(shape);
  layout.blocks = 2 * places.unit_tiles;
  const bool wide = places.unit_tiles > 2 * mlp::kGridShardedWarps;
  layout.shared_bytes = shape.masters ? (wide ? mlp::GridShardedMap<3, 4, true>::kBytes
                                              : mlp::GridShardedMap<3, 2, true>::kBytes)
                                      : (wide ? mlp::GridShardedMap<3, 4, false>::kBytes
                                              : mlp::GridShardedMap<3, 2, false>::kBytes);
  layout.workspace_bytes = places.bytes;
  if (limits.generation < 8) layout.refusal = "needs compute capability 8.0 or later";
  if (layout.blocks > limits.blocks || layout.shared_bytes > limits.shared_bytes) {
    layout.refusal = "needs more SMs or shared memory than the GPU has";
  }
  return layout;
}

}  // namespace ridgeline::cuda
