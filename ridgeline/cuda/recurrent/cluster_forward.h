#pragma once

#include "ridgeline/cuda/recurrent/persistent.h"

// A persistent pass by clusters of sixteen blocks, each of which has the whole layer between its
// blocks and some of the samples: the state goes through distributed shared memory, which takes
// less time than L2 does. LSTMs and GRUs of up to 512 units in halves.
namespace ridgeline::cuda::recurrent {

PersistentLayout cluster_forward_layout(Cell cell, int planes, int hidden, int batch);

// T is __nv_bfloat16 or __half.
template <typename T>
cudaError_t launch_cluster_forward(const PersistentForward<T>& args, const PersistentLayout& layout,
                                   cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
