#pragma once

// The launch of one instantiation of the trainer, for the files that instantiate it.

#include "ridgeline/cuda/population/train.cuh"

namespace ridgeline::cuda::population {

template <typename T, int kUnits, bool kMasters, PopulationRule kRule>
cudaError_t launch(const LaunchArgs& args, int count, cudaStream_t stream) {
  const auto kernel = population_train_kernel<T, kUnits, kMasters, kRule>;
  const int bytes = Map<T, kUnits, kMasters>::bytes(args.inputs);
  if (const auto e =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) {
    return e;
  }
  if (const auto e =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)) {
    return e;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = unsigned(count * args.blocks);
  config.blockDim = kThreads;
  config.dynamicSmemBytes = size_t(bytes);
  config.stream = stream;
  cudaLaunchAttribute cluster[1];
  cluster[0].id = cudaLaunchAttributeClusterDimension;
  cluster[0].val.clusterDim = {unsigned(args.blocks), 1, 1};
  config.attrs = cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, args);
}

cudaError_t launch_half_weights(const PopulationShape& shape, int units, const LaunchArgs& args,
                                int count, cudaStream_t stream);
cudaError_t launch_masters(const PopulationShape& shape, const LaunchArgs& args, int count,
                           cudaStream_t stream);

}  // namespace ridgeline::cuda::population
