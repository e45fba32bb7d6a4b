#pragma once

#include <string>
#include <vector>

#include "ridgeline/cuda/generate/source.h"

namespace ridgeline::cuda::generate {

// An inference call of a perceptron that is a whole program: a gather, linear layers with
// activations, then softmax, an activation or a copy, optionally argmax, and tick.
struct CallNet {
  struct Layer {
    const Linear* linear = nullptr;
    const Activation* activation = nullptr;
  };
  const Gather* inputs = nullptr;
  std::vector<Layer> layers;
  bool softmax = false;
  Value outputs, largest;  // largest: the argmax; may be absent
  const Tick* tick = nullptr;
  Math math = Math::fp32;
  std::vector<ValueId> inside;
  std::string refusal;

  int64_t batch() const { return inputs->y.shape[0]; }
};
CallNet match_call(const RemainingOps& rest);

// Blocks per cluster; a cluster takes 16 samples.
constexpr int kCallBlocks = 8;

// Writes the source. Weights are in the workspace (Source::workspace_bytes), in a layout that a
// second function of the source (kSpreadName) converts them to, once.
Source write_call(const CallNet& net);
constexpr const char* kSpreadName = "ridgeline_spread";

}  // namespace ridgeline::cuda::generate
