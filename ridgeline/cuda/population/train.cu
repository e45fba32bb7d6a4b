#include <algorithm>

#include "ridgeline/cuda/population/train.cuh"

namespace ridgeline::cuda {

cudaError_t train_population(const PopulationTraining& training, cudaStream_t stream) {
  using namespace population;
  int device = 0, processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  error = cudaFuncSetAttribute(population_train_mlp_kernel,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Shared)));
  if (error != cudaSuccess) return error;
  const int blocks = std::min(processors, training.members);
  population_train_mlp_kernel<<<blocks, kThreads, sizeof(Shared), stream>>>(training);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
