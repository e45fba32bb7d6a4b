#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridgeline/cuda/one_sample/net_args.h"
#include "ridgeline/plan/layer_chain.h"

namespace ridgeline::cuda::one_sample {

// A chain of layers in the form that the GPU function needs: what each block computes, and its
// weights in the order in which it reads them.
struct NetLayout {
  NetArgs args;                // without pointers
  std::vector<float> weights;  // [blocks][weights_stride]
};

struct NetLimits {
  size_t shared_bytes = 0;  // per block
  bool stays = false;       // recurrent weights are to be on chip too, if they fit
  int blocks = 0;           // per cluster; 0: as many as the weights need
};

// Returns nothing, with the reason, for a chain that the function does not support.
std::optional<NetLayout> lay_out_net(const LayerChain& chain, const NetLimits& limits,
                                     std::string& why_not);

}  // namespace ridgeline::cuda::one_sample
