#pragma once

#include "ridgeline/cuda/plain/norm.h"

// Batch normalisation with each channel shared out over a cluster of blocks (sm_90), whose sums
// meet in shared memory, added in order: a net has few channels, and a block a channel leaves most
// of a GPU idle.
namespace ridgeline::cuda {

template <typename T>
cudaError_t launch_batch_norm_cluster(const BatchNormArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_batch_norm_grad_cluster(const BatchNormGradArgs<T>& args, cudaStream_t stream);

}  // namespace ridgeline::cuda
