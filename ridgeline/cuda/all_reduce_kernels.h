#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Sums of gradients over several ranks: by NCCL on a stream of its own inside the captured graph;
// by an MPI library that accepts GPU memory, between two graphs; or through host memory and the
// ranks' communicator, as a host node of the graph. One kernel waits for all of them, whichever
// started the sum. A process that runs alone is a single rank, and the sum is a copy.
KernelTable all_reduce_kernels();

}  // namespace ridgeline::cuda
