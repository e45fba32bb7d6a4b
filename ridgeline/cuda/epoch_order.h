#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/core/feistel.h"

namespace ridgeline::cuda {

// order[i] = network(i) for all i below network.n.
cudaError_t launch_epoch_order(const Feistel& network, int32_t* order, cudaStream_t stream);

}  // namespace ridgeline::cuda
