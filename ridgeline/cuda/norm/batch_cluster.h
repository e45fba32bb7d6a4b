#pragma once

#include "ridgeline/cuda/plain/norm.h"

// Batch normalisation with each channel distributed over a cluster of blocks (sm_90), whose sums
// are exchanged in shared memory and added in order. A network has few channels, and one block per
// channel would leave most of a GPU idle.
namespace ridgeline::cuda {

template <typename T>
cudaError_t launch_batch_norm_cluster(const BatchNormArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_batch_norm_grad_cluster(const BatchNormGradArgs<T>& args, cudaStream_t stream);

}  // namespace ridgeline::cuda
