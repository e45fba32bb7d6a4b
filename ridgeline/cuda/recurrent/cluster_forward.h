#pragma once

#include "ridgeline/cuda/recurrent/persistent.h"

// A persistent pass by clusters of sixteen blocks. Each cluster holds the whole layer and takes
// some of the samples: the state is exchanged through distributed shared memory, which is faster
// than L2. LSTMs and GRUs of up to 512 units in half types.
namespace ridgeline::cuda::recurrent {

PersistentLayout cluster_forward_layout(Cell cell, int planes, int hidden, int batch);

// T is __nv_bfloat16 or __half.
template <typename T>
cudaError_t launch_cluster_forward(const PersistentForward<T>& args, const PersistentLayout& layout,
                                   cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
