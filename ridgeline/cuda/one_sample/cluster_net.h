#pragma once

#include <memory>
#include <string>

#include "ridgeline/cuda/runtime.h"
#include "ridgeline/plan/layer_chain.h"

namespace ridgeline::cuda {

// The chain of layers on one cluster of the GPU (one_sample/net.cu), launched by a graph for each
// sample, or resident. Returns null, with the reason, if the GPU or the chain is not supported.
// `blocks` is the number of blocks of the cluster; 0: as many as the weights need.
std::unique_ptr<OneSampleNet> make_cluster_net(CudaRuntime& runtime, const LayerChain& chain,
                                               const OneSampleOptions& options,
                                               std::string& why_not, int blocks = 0);

}  // namespace ridgeline::cuda
