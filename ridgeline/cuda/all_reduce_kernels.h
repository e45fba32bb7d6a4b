#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Gradients over several ranks: by NCCL on a stream of its own inside the captured graph; by an MPI
// that takes the GPU's memory, between two graphs; or through the host's memory and the ranks'
// communicator, as a host step of the graph. Any start fits the one wait. A process alone is one
// rank: copies.
KernelTable all_reduce_kernels();

}  // namespace ridgeline::cuda
