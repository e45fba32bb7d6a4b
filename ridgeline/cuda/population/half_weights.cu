#include "ridgeline/cuda/population/launch.cuh"

namespace ridgeline::cuda::population {

cudaError_t launch_half_weights(const PopulationShape& shape, int units, const LaunchArgs& args,
                                int count, cudaStream_t stream) {
  constexpr auto kSgd = PopulationRule::sgd;
  if (shape.rule != kSgd) return cudaErrorNotSupported;
  if (shape.numbers == PopulationNumbers::fp16) {
    return units == 128 ? launch<__half, 128, false, kSgd>(args, count, stream)
                        : launch<__half, 64, false, kSgd>(args, count, stream);
  }
  return units == 128 ? launch<__nv_bfloat16, 128, false, kSgd>(args, count, stream)
                      : launch<__nv_bfloat16, 64, false, kSgd>(args, count, stream);
}

}  // namespace ridgeline::cuda::population
