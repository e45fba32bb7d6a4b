#include "ridgeline/cuda/population/launch.cuh"

namespace ridgeline::cuda::population {
namespace {

template <typename T>
cudaError_t by_rule(PopulationRule rule, const LaunchArgs& args, int count, cudaStream_t stream) {
  switch (rule) {
    case PopulationRule::sgd:
      return launch<T, 64, true, PopulationRule::sgd>(args, count, stream);
    case PopulationRule::momentum:
      return launch<T, 64, true, PopulationRule::momentum>(args, count, stream);
    default:
      return launch<T, 64, true, PopulationRule::adam>(args, count, stream);
  }
}

}  // namespace

cudaError_t launch_masters(const PopulationShape& shape, const LaunchArgs& args, int count,
                           cudaStream_t stream) {
  return shape.numbers == PopulationNumbers::bf16_masters
             ? by_rule<__nv_bfloat16>(shape.rule, args, count, stream)
             : by_rule<__half>(shape.rule, args, count, stream);
}

}  // namespace ridgeline::cuda::population
