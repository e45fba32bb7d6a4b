#pragma once

#include <string>

#include "ridgeline/cuda/plain/norm.h"

// Layer normalisation of long rows: a cluster of eight blocks takes a row, and each block keeps its
// part in shared memory, so that global memory is read once for all passes.
namespace ridgeline::cuda {

// Why rows of `width` values of this many bytes cannot be taken; "" if they can.
std::string refuse_layer_cluster(int64_t rows, int64_t width, size_t bytes);

template <typename T>
cudaError_t launch_layer_norm_cluster(const LayerNormArgs<T>& args, cudaStream_t stream);
// dgamma and dbeta are computed by a separate launch: a thread sums a few columns over all rows, in
// order.
template <typename T>
cudaError_t launch_layer_norm_grad_cluster(const LayerNormGradArgs<T>& args, cudaStream_t stream);

}  // namespace ridgeline::cuda
