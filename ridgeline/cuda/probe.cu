#include "ridgeline/cuda/probe.h"

namespace ridgeline::cuda {
namespace {

__global__ void probe_kernel() {}

}  // namespace

std::vector<int> compiled_architectures() {
  std::vector<int> all;
  for (const int arch : {__CUDA_ARCH_LIST__}) all.push_back(arch / 10);
  return all;
}

cudaError_t probe_kernels() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, probe_kernel);
}

}  // namespace ridgeline::cuda
