#include "ridgeline/cuda/epoch_order.h"

namespace ridgeline::cuda {
namespace {

constexpr uint32_t kThreads = 256;

__global__ void epoch_order_kernel(Feistel network, int32_t* __restrict__ order) {
  const uint32_t place = blockIdx.x * kThreads + threadIdx.x;
  if (place < network.n) order[place] = int32_t(network(place));
}

}  // namespace

cudaError_t launch_epoch_order(const Feistel& network, int32_t* order, cudaStream_t stream) {
  const uint32_t blocks = (network.n + kThreads - 1) / kThreads;
  epoch_order_kernel<<<blocks, kThreads, 0, stream>>>(network, order);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
