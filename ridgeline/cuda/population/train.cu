#include "ridgeline/cuda/population/launch.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kMostBlocks = 16;  // per cluster

bool has_masters(PopulationNumbers numbers) {
  return numbers != PopulationNumbers::fp16 && numbers != PopulationNumbers::bf16;
}

}  // namespace

PopulationLayout population_layout(const PopulationShape& shape, bool fewest_blocks) {
  using namespace population;
  PopulationLayout layout;
  const bool masters = has_masters(shape.numbers);
  layout.units = !masters && fewest_blocks && shape.hidden > 64 ? 128 : 64;
  layout.blocks = (shape.hidden + layout.units - 1) / layout.units;
  layout.shared_bytes = size_t(masters               ? Map<__half, 64, true>::bytes(shape.inputs)
                               : layout.units == 128 ? Map<__half, 128, false>::bytes(shape.inputs)
                                                     : Map<__half, 64, false>::bytes(shape.inputs));
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) {
    layout.refusal = cudaGetErrorString(error);
  } else if (shape.inputs % kPanel != 0) {
    layout.refusal = "takes inputs in multiples of 16";
  } else if (shape.classes > kClasses || shape.batch > kRows) {
    layout.refusal = "takes up to 16 classes and 128 samples";
  } else if (shape.rule != PopulationRule::sgd && (!masters || shape.hidden % 64 != 0)) {
    layout.refusal = "takes momentum and Adam with fp32 weights and units in multiples of 64 only";
  } else if (layout.blocks > kMostBlocks) {
    layout.refusal = "takes up to " + std::to_string(kMostBlocks * layout.units) + " units";
  } else if (layout.shared_bytes > size_t(most)) {
    layout.refusal = "the first layer's weights do not fit in shared memory";
  }
  return layout;
}

cudaError_t train_population(const PopulationShape& shape, const PopulationLayout& layout,
                             const MemberArgs* members, int count, const MemberArgs& one,
                             cudaStream_t stream) {
  using namespace population;
  const LaunchArgs args{members,       one,         shape.inputs, shape.hidden,
                        shape.classes, shape.batch, layout.blocks};
  return has_masters(shape.numbers) ? launch_masters(shape, args, count, stream)
                                    : launch_half_weights(shape, layout.units, args, count, stream);
}

}  // namespace ridgeline::cuda
