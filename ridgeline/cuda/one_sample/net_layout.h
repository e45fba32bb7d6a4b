#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridgeline/cuda/one_sample/net_args.h"
#include "ridgeline/plan/layer_chain.h"

namespace ridgeline::cuda::one_sample {

// A chain of layers as the kernel wants it: what each block computes, and its weights in the order
// that it reads them.
struct NetLayout {
  NetArgs args;                // without pointers
  std::vector<float> weights;  // [blocks][weights_stride]
};

struct NetLimits {
  size_t shared_bytes = 0;  // of a block
  bool stays = false;       // recurrent weights are to lie there too, where they fit
  int blocks = 0;           // of the cluster; 0: as many as the weights ask for
};

// None, with the reason, for a chain that the kernel does not take.
std::optional<NetLayout> lay_out_net(const LayerChain& chain, const NetLimits& limits,
                                     std::string& why_not);

}  // namespace ridgeline::cuda::one_sample
